"""Simulators whose messages cost themselves at most: over a real channel, beside one that trains on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_simulators import PATIENCE_S, Refused, WireSimulator, WireSimulatorThreads

from trainer_service.learning.rollout.assembler import TrajectoryAssembler

AGENTS = range(8)
HALF = 400 // 2 // len(AGENTS)
"""Ticks in which half of the step budget is used."""


@pytest.fixture
def visitors(free_port: int) -> Iterator[WireSimulatorThreads]:
    crowd = WireSimulatorThreads(free_port)
    yield crowd
    crowd.join()


@pytest.fixture
def learn(mlagents_style, configure, free_port: int) -> Callable[..., Any]:
    """A run that listens, in this process."""
    configure("Walker")
    line = ("learn", "config.yaml", f"--port={free_port}", "--seed=1", "--run-id=w")
    return lambda *flags: mlagents_style(*line, *flags)


def test_a_mistake_of_ours_costs_the_simulator_that_meets_it(
    learn, visitors: WireSimulatorThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, fragile = TrajectoryAssembler.observe, 1313
    half, over = threading.Event(), threading.Event()

    def fail(self: TrajectoryAssembler, simulator: int, team: int, batch: Any, *others: Any) -> Any:
        observed = observe(self, simulator, team, batch, *others)
        if fragile in batch.agent_ids:  # half of its tick is done
            raise IndexError("index 7 is out of bounds")
        return observed

    def healthy(visitor: WireSimulator) -> None:
        visitor.handshake()
        for _ in range(HALF):
            visitor.step({"Walker?team=0": AGENTS})
        half.set()
        assert over.wait(PATIENCE_S)
        while True:
            visitor.step({"Walker?team=0": AGENTS})

    def meet(visitor: WireSimulator) -> None:
        assert half.wait(PATIENCE_S)
        try:
            visitor.handshake().step({"Walker?team=0": AGENTS})
            visitor.step({"Walker?team=0": AGENTS})
            failure = "observing its message failed in the trainer: IndexError: 'index 7"
            with pytest.raises(Refused, match=failure):
                visitor.step({"Walker?team=0": [*AGENTS, fragile]})
        finally:
            over.set()

    monkeypatch.setattr(TrajectoryAssembler, "observe", fail)
    visitors.send(healthy)
    visitors.send(meet)
    said = learn()
    assert said.code == 0, said.out + said.err
    assert "Walker. Step: 400." in said.out
    assert said.out.count("Traceback (most recent call last)") == 1


def test_a_run_without_accepted_simulators_ends_naming_the_refused(
    learn, visitors: WireSimulatorThreads
) -> None:
    def stranger(visitor: WireSimulator) -> None:
        with pytest.raises(Refused, match="'Wolker' has not been specified"):
            visitor.handshake().step({"Wolker?team=0": AGENTS})

    visitors.send(stranger)
    said = learn("--timeout-wait=1")
    assert said.code != 0
    assert "within 1 s after the last one left; that was simulator 0" in said.err
    assert "'Wolker' has not been specified" in said.err
