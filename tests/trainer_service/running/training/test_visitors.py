"""Simulators whose messages cost themselves at most: over a real channel, beside one that trains on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire_simulators import PATIENCE_S, Refused, WireSimulator, WireSimulatorThreads

from trainer_service.learning.rollout.assembler import TrajectoryAssembler

AGENTS = range(8)
BUDGET = 400
HALF = BUDGET // 2 // len(AGENTS)


@pytest.fixture
def visitors(free_port: int) -> Iterator[WireSimulatorThreads]:
    crowd = WireSimulatorThreads(free_port)
    yield crowd
    crowd.join()


@pytest.fixture
def learn(mlagents_style, free_port: int) -> Callable[..., Any]:
    """A run that listens, in this process."""
    return lambda *flags: mlagents_style(
        "learn", "config.yaml", f"--port={free_port}", "--seed=1", "--run-id=w", *flags
    )


@pytest.fixture
def beside(visitors: WireSimulatorThreads) -> Callable[..., None]:
    """Sends a healthy simulator, and when half of its step budget is used another, which does as it is told; the
    other half begins when that is over."""
    half, over = threading.Event(), threading.Event()

    def healthy(visitor: WireSimulator) -> None:
        visitor.handshake()
        for _ in range(HALF):
            visitor.step({"Walker?team=0": AGENTS})
        half.set()
        assert over.wait(PATIENCE_S)
        while True:
            visitor.step({"Walker?team=0": AGENTS})

    def send(act: Callable[[WireSimulator], None]) -> None:
        def other(visitor: WireSimulator) -> None:
            assert half.wait(PATIENCE_S)
            try:
                act(visitor)
            finally:
                over.set()

        visitors.send(healthy)
        visitors.send(other)

    return send


def assert_the_run_came_to_its_end(said: Any) -> None:
    assert said.code == 0, said.out + said.err
    assert "Walker. Step: 400." in said.out


def test_an_impossible_team_costs_the_simulator_that_names_it(learn, configure, beside) -> None:
    configure("Walker")

    def misname(visitor: WireSimulator) -> None:
        visitor.handshake().step({"Walker?team=0": AGENTS})
        with pytest.raises(Refused, match="expected a team number of at most 9 digits"):
            visitor.step({"Walker?team=2147483648": AGENTS})

    beside(misname)
    said = learn()
    assert_the_run_came_to_its_end(said)
    assert "[ERROR] Simulator 1 is refused: behavior id 'Walker?team=" in said.out


@pytest.fixture
def fragile_assembler(monkeypatch: pytest.MonkeyPatch) -> int:
    """The id of an agent at which a mistake of ours comes to light, when half of its tick is done."""
    observe, agent = TrajectoryAssembler.observe, 1313

    def fail(self: TrajectoryAssembler, simulator: int, team: int, batch: Any, *others: Any) -> Any:
        observed = observe(self, simulator, team, batch, *others)
        if agent in batch.agent_ids:
            raise IndexError("index 7 is out of bounds")
        return observed

    monkeypatch.setattr(TrajectoryAssembler, "observe", fail)
    return agent


def test_a_mistake_of_ours_costs_the_simulator_that_meets_it(
    learn, configure, beside, fragile_assembler: int
) -> None:
    configure("Walker")

    def meet(visitor: WireSimulator) -> None:
        visitor.handshake().step({"Walker?team=0": AGENTS})
        visitor.step({"Walker?team=0": AGENTS})
        with pytest.raises(
            Refused, match="observing its message failed in the trainer: IndexError: 'index 7"
        ):
            visitor.step({"Walker?team=0": [*AGENTS, fragile_assembler]})

    beside(meet)
    said = learn()
    assert_the_run_came_to_its_end(said)
    assert said.out.count("Traceback (most recent call last)") == 1


def test_a_run_without_accepted_simulators_ends_naming_the_refused(
    learn, configure, visitors: WireSimulatorThreads
) -> None:
    configure("Walker")

    def stranger(visitor: WireSimulator) -> None:
        with pytest.raises(Refused, match="'Wolker' has not been specified"):
            visitor.handshake().step({"Wolker?team=0": AGENTS})

    visitors.send(stranger)
    said = learn("--timeout-wait=1")
    assert said.code != 0
    assert "within 1 s after the last one left; that was simulator 0" in said.err
    assert "'Wolker' has not been specified" in said.err


def test_names_of_a_runs_own_files_cost_their_visitor_alone(learn, configure, beside, free_port: int) -> None:
    path = configure("Walker")
    path.write_text(path.read_text() + "default_settings: {trainer_type: random}\n")
    refusals = {
        ".lock": "must not start with a dot",
        "Walker.onnx": "must not be the name of a file or folder that a run writes",
        "set-aside-1": "must not be the name of a file or folder that a run writes",
        "walker": "expected a name that differs in more than case from 'Walker'",
        "Blocked": "behavior 'Blocked': cannot write",
    }

    def misname(_: WireSimulator) -> None:
        Path("results/w/Blocked").touch()
        for name, reason in refusals.items():
            with WireSimulator(free_port) as visitor, pytest.raises(Refused, match=reason):
                visitor.handshake().step({f"{name}?team=0": [1]})

    beside(misname)
    assert_the_run_came_to_its_end(learn("--timeout-wait=1"))
    assert Path("results/w/Walker.onnx").is_file()


def test_the_first_comers_description_binds_nobody_after_it(
    learn, configure, visitors: WireSimulatorThreads, free_port: int
) -> None:
    configure("Walker")
    there, refused, gone = threading.Event(), threading.Event(), threading.Event()

    def stranger(visitor: WireSimulator) -> None:
        visitor.handshake().step({"Walker?team=0": [1]}, size=9, continuous=3)
        there.set()
        assert refused.wait(PATIENCE_S)
        visitor.leave()
        gone.set()

    def walker(visitor: WireSimulator) -> None:
        assert there.wait(PATIENCE_S)
        with (
            WireSimulator(free_port) as early,
            pytest.raises(Refused, match="differs from what simulator 0 declared before: "),
        ):
            early.handshake().step({"Walker?team=0": AGENTS})
        refused.set()
        assert gone.wait(PATIENCE_S)
        visitor.handshake()
        while True:
            visitor.step({"Walker?team=0": AGENTS})

    visitors.send(stranger)
    visitors.send(walker)
    assert_the_run_came_to_its_end(learn())
