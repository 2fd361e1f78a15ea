"""Lines of progress between summaries, by a clock that the test sets."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from behavior_worlds import observe

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from trainer_service.running.metrics.console import Console
from trainer_service.running.training.progress_log import ExchangeHint, ProgressLog
from unity_bridge.simulators.scene import step_batch


@dataclass
class Run:
    """A console, what it has said, and the clock that the progress log looks at."""

    console: Console
    stream: io.StringIO
    behavior: Behavior
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.progress = ProgressLog(self.console, clock=lambda: self.now_s)

    def after(self, seconds: float) -> list[str]:
        """Looks at that later time; returns what was said then."""
        self.now_s += seconds
        before = self.stream.tell()
        self.progress.update({"Ball": self.behavior})
        return self.stream.getvalue()[before:].splitlines()


@pytest.fixture
def run(make_behavior) -> Iterator[Run]:
    stream = io.StringIO()
    with Console(tty=False, stream=stream) as console:
        yield Run(console, stream, make_behavior(name="Ball"))


def live(behavior: Behavior, ticks: int, *, ends: bool) -> None:
    """One agent goes on for some ticks with a reward of 2 each, and comes to its end."""
    for tick in range(ticks):
        rows = 2 if ends and tick == ticks - 1 else 1
        batch = step_batch(
            [np.zeros((rows, 1), np.float32)],
            np.array([2.0, 0.0][:rows], np.float32),
            agent_ids=np.zeros(rows, np.int64),
            allowed_actions=np.ones((rows, 2), np.bool_),
            terminated=np.array([rows == 2, False][:rows]),
        )
        observe(behavior, BehaviorTick(0, 0, batch))
        behavior.collector.act()


def test_after_30_seconds_without_a_summary_a_line_comes(run: Run) -> None:
    assert run.after(0) == run.after(29.9) == []
    live(run.behavior, 41, ends=False)
    assert run.after(0.5) == [
        "[INFO] Ball. 40 of 400 steps (10 %). 1.3 steps/s, about 5 min left. No episode was completed since the last "
        "summary. Collected 32 of 128 steps for the next update."
    ]
    live(run.behavior, 40, ends=True)
    assert run.after(29.0) == []
    (line,) = run.after(1.0)
    assert "Mean return of 1 episode since the last summary: 160.000." in line


def test_a_budget_of_episodes_is_shown_and_forecast(make_behavior) -> None:
    stream = io.StringIO()
    with Console(tty=False, stream=stream) as console:
        counted = Run(console, stream, make_behavior(name="Ball", max_episodes=4))
        counted.after(0)
        live(counted.behavior, 21, ends=True)
        (line,) = counted.after(30)
    # 20 of 400 steps in 30 s would be 10 min; one of four episodes leaves three of 30 s.
    assert "Ball. 20 of 400 steps (5 %), 1 of 4 episodes. 0.7 steps/s, about 2 min left." in line


def test_where_summaries_come_all_the_time_a_forecast_is_rare(run: Run) -> None:
    said: dict[float, list[str]] = {}
    for now_s in range(0, 700, 10):
        said[now_s] = run.after(0 if now_s == 0 else 10)
        live(run.behavior, 2, ends=False)
        run.progress.write(run.behavior.partial_summary(wall_s=0.0))
    assert {now_s: lines for now_s, lines in said.items() if lines} == {
        60: ["[INFO] About 35 min left."],
        360: ["[INFO] About 28 min left."],
        660: ["[INFO] About 23 min left."],
    }


def test_a_simulator_that_is_silent_is_named(run: Run) -> None:
    live(run.behavior, 11, ends=False)
    run.after(0)
    assert "10 of 400 steps (2 %). No step for 30 s." in run.after(30)[0]


def test_a_long_update_says_at_which_minibatch_it_is(run: Run) -> None:
    run.after(0)
    for minibatch in range(60):
        run.now_s += 1
        run.progress.updating("Ball", minibatch, 60)
    assert re.findall("Updating.*", run.stream.getvalue()) == [
        "Updating: minibatch 30 of 60.",
        "Updating: minibatch 60 of 60.",
    ]


def test_a_run_without_simulators_says_what_it_waits_for(run: Run) -> None:
    for _ in range(61):
        run.progress.update({})
        run.now_s += 1
    assert run.stream.getvalue().splitlines() == ["[INFO] Waiting for the first step of a simulator."] * 2


class Measured:
    """Timers that say what a test wants."""

    def __init__(self) -> None:
        self.blocks: dict[str, tuple[float, int]] = {}

    def spent(self, name: str) -> tuple[float, int]:
        return self.blocks.get(name, (0.0, 0))


def said_after_a_window(
    *, exchanging_s: float, agents: int, updates: int = 1, env: str | None = "gym:CartPole-v1"
) -> list[str]:
    """Advice after 20 s, 100 000 decisions later and 20 s after that."""
    timers = Measured()
    hint = ExchangeHint(timers, env, 1)  # type: ignore[arg-type]  # as far as it is asked
    said = [hint.check(100.0, 0)]
    for window in (1, 2):
        timers.blocks = {
            "receive": (window * exchanging_s, 100_000 * window),
            "act": (0.0, 10_000 * window),
            "update": (0.0, updates * window),
        }
        said += [hint.check(100.0 + 20.0 * window, window * 10_000 * agents)]
    return [text for text in said if text]


def test_time_spent_on_messages_about_one_agent_is_mentioned_once() -> None:
    assert said_after_a_window(exchanging_s=14.0, agents=1) == [
        "70% of the time goes into exchanges with the simulator, 1.0 agents at a time. Faster: --env-args --agents 8 "
        "(copies that share an exchange), or --num-envs=2 (simulators beside each other)"
    ]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"exchanging_s": 9.0, "agents": 1},
        {"exchanging_s": 14.0, "agents": 3},
        {"exchanging_s": 14.0, "agents": 1, "updates": 0},
        {"exchanging_s": 14.0, "agents": 1, "env": None},
    ],
    ids=["it learns most of the time", "several agents at a time", "it has not learned yet", "attached"],
)
def test_otherwise_nothing_is_said(otherwise) -> None:
    assert said_after_a_window(**otherwise) == []
