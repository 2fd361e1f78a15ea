from __future__ import annotations

import pytest

from trainer_service.running.training.progress_log import ExchangeHint


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
