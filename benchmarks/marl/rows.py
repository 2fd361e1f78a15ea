"""What is trained, on what it is scored, and what others are known to reach there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

COMPARED = "benchmarks/marl/configs"
"""Where configurations are that only a comparison needs."""

Unit = Literal["P", "S", "team", "agent"]
"""P: return of an agent in an episode of spread. S: 6 P − 3 T, of episodes of T steps. team: everyone's sum."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration, to be trained with several seeds."""

    name: str
    """Of its file, up to a hyphen; what follows tells its rows apart."""

    task: str
    trained_on: str
    scored_on: str
    agents: int
    """Of a team: so many episodes end at once."""

    episodes: int
    """Of teams, that a score is the mean of."""

    unit: Unit = "P"
    bar: float | None = None
    """What the project asks of it."""

    published: float | None = None
    """The best mean return of EPyMARL's learner of that kind, https://arxiv.org/abs/2006.07869, in the row's unit."""

    env_args: tuple[str, ...] = ()
    """For the simulator of the evaluation."""

    trained_args: tuple[str, ...] = ()
    """For the simulator of the training."""

    steps: int = 25
    """Of an episode."""

    drawn: bool = False
    """Whether it is scored with its actions drawn, not greedily."""

    picture: str = ""
    """Where one picture of the task would show too many curves, the name of that with this one's."""

    folder: str = "configs"
    """Of its file: that of the bundled configurations, or of those that are there for a comparison alone."""

    @property
    def config(self) -> str:
        return f"{self.folder}/{self.config_name}.yaml"

    @property
    def config_name(self) -> str:
        return self.name.partition("-")[0]

    def learn(self, run_id: str, seed: int) -> list[str]:
        """Arguments of the command that trains it."""
        arguments = self.trained_args and ("--env-args", *self.trained_args)
        return [
            "learn",
            self.config,
            f"--run-id={run_id}",
            f"--env={self.trained_on}",
            f"--seed={seed}",
            *arguments,
        ]

    def evaluate(self, run_id: str) -> list[str]:
        """Arguments of the command that scores its last checkpoint."""
        arguments = (*["--stochastic"][: self.drawn], *(self.env_args and ("--env-args", *self.env_args)))
        count = self.agents * self.episodes
        return ["evaluate", run_id, f"--env={self.scored_on}", f"--episodes={count}", "--json", *arguments]

    def score(self, said: Mapping[str, Any]) -> float:
        """From what ``evaluate --json`` says."""
        behaviors = list(said["behaviors"].values())
        if self.unit == "team":
            return float(behaviors[0]["mean_group_return"])
        mean = sum(float(each["mean_return"]) for each in behaviors) / len(behaviors)
        return 6.0 * mean - 3.0 * self.steps if self.unit == "S" else mean


_SPREAD, _MPE2 = "sim:spread", "pettingzoo:mpe2.simple_spread_v3"
_COPIES = ("--copies", "50")
_SPEAKER = "pettingzoo:mpe2.simple_speaker_listener_v4"

_SWITCH2 = "sim:switch2"


def _switch(name: str, bar: float | None = None, *env_args: str, agents: int = 2) -> Row:
    """One of those that learn values in the corridor of so many agents."""
    task = f"switch{agents}"
    scene = f"sim:{task}"
    return Row(
        f"{task}_{name}", task, scene, scene, agents, 500,
        unit="team", bar=bar, env_args=env_args, picture="values",
    )  # fmt: skip


def _spread(name: str, bar: float, published: float | None = None, *, picture: str = "") -> Row:
    """One of those that spread, learning in our own scene, scored on MPE's."""
    return Row(
        f"spread_{name}", "spread", _SPREAD, _MPE2, 3, 1000,
        bar=bar, published=published, env_args=_COPIES, picture=picture,
    )  # fmt: skip


def _foraging(name: str, field: str, agents: int, *, drawn: bool = True) -> Row:
    """One of those that load food together: a team's return is the share of the food that it collected."""
    scene = f"gymma:Foraging-{field}-v3"
    task = f"foraging {field}, drawn" if drawn else f"foraging {field}"
    return Row(
        f"lbf_{name}-{field}", task, scene, scene, agents, 500,
        unit="team", env_args=("--copies", "16", "--steps", "50"), drawn=drawn,
    )  # fmt: skip


def _speaker_listener(name: str, folder: str = "configs") -> Row:
    """One of those that learn what is meant, and to say it."""
    return Row(
        f"speaker_listener_{name}", "speaker and listener", _SPEAKER, _SPEAKER, 1, 1000,
        unit="agent", env_args=_COPIES, folder=folder,
    )  # fmt: skip


ROWS = (
    _spread("mappo", -8.5, -9.76),
    _spread("ippo", -8.6, -9.81),
    _spread("poca", -9.5),
    _spread("coma", -15.0, -21.55),
    Row(
        "spread_mappo_seed", "spread, 50 steps", _SPREAD, _SPREAD, 3, 1000,
        unit="S", bar=-300.0, env_args=("--copies", "16", "--steps", "50"), steps=50,
    ),
    Row("switch2_mappo", "switch2", _SWITCH2, _SWITCH2, 2, 500, unit="team", bar=8.0),
    _switch("vdn", 8.0, "--clock"),
    _switch("qmix", None, "--clock"),
    _switch("sic", 8.0),
    _switch("dqn_share", 8.0),
    _switch("idqn", 6.0, "--clock"),
    _switch("dqn_consensus", 6.0),
    _switch("vdn", 14.0, "--clock", agents=4),
    _switch("dqn_share", 14.0, agents=4),
    _spread("idqn", -13.0, -9.61, picture="values"),
    _spread("vdn", -8.8, -9.34, picture="values"),
    _spread("qmix", -8.6, -8.60, picture="values"),
    _spread("maddpg", -8.2, -11.12, picture="values"),
    Row("cartpole_dqn", "cartpole", "gym:CartPole-v1", "gym:CartPole-v1", 1, 500, unit="agent", bar=475.0),
    Row("lunarlander_dqn", "lunarlander", "gym:LunarLander-v3", "gym:LunarLander-v3", 1, 500, unit="agent", bar=200.0),
    Row("pendulum_ddpg", "pendulum", "gym:Pendulum-v1", "gym:Pendulum-v1", 1, 500, unit="agent", bar=-200.0),
    Row("pendulum_td3", "pendulum", "gym:Pendulum-v1", "gym:Pendulum-v1", 1, 500, unit="agent", bar=-200.0),
    _speaker_listener("ippo", COMPARED),
    _speaker_listener("mappo"),
    _speaker_listener("maddpg"),
    _speaker_listener("vdn", COMPARED),
    _speaker_listener("qmix"),
    *(
        _foraging(name, field, agents, drawn=name in ("ippo", "mappo"))
        for field, agents in (("8x8-2p-3f", 2), ("10x10-3p-3f", 3), ("15x15-3p-4f", 3))
        for name in ("ippo", "mappo", "vdn", "qmix")
    ),
    Row(
        "rware_mappo", "warehouse tiny-4ag, drawn", "gymma:rware-tiny-4ag-v2", "gymma:rware-tiny-4ag-v2", 4, 100,
        unit="team", drawn=True,
    ),
)  # fmt: skip
