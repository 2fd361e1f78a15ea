"""Rows of the table of scores: the training, the environment of the score, and published scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

COMPARED = "benchmarks/scores/configs"
"""The folder of configurations that only a comparison needs."""

_ENGINES = {
    **dict.fromkeys(("Ant", "HalfCheetah", "Hopper", "Walker2d"), "mujoco"),
    **dict.fromkeys(("BipedalWalker", "LunarLander"), "box2d"),
    "MiniGrid": "minigrid",
    "ale_py": "ale-py",
}
"""Packages beside Gymnasium, by the beginnings of its environments' names."""

Unit = Literal["P", "S", "team", "agent"]
"""P: return of an agent in an episode of spread. S: 6 P − 3 T, of episodes of T steps. team: everyone's sum."""

Rival = Literal["SB3", "SBX"]
"""Stable-Baselines3, and its counterpart in JAX."""


class Published(NamedTuple):
    """The best published score of the corresponding learner."""

    score: float
    """In the row's unit."""

    source: str
    """The library, and the version of its environment."""

    millions: float
    """Of agent steps."""

    deviation: float = 0.0
    """Between seeds; 0 where it is not published or there is one run."""


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
    published: Published | None = None

    env_args: tuple[str, ...] = ()
    """For the simulator of the evaluation."""

    trained_args: tuple[str, ...] = ()
    """For the simulator of the training."""

    settings: tuple[str, ...] = ()
    """Changes of the configuration, each as --set takes it."""

    steps: int = 25
    """Of an episode."""

    drawn: bool = False
    """Whether it is scored with its actions drawn, not greedily."""

    picture: str = ""
    """Where one picture of the task would show too many curves, the name of that with this one's."""

    folder: str = "configs"
    """Of its file: that of the bundled configurations, or of those for a comparison alone."""

    digits: int = 2
    """After the point, in the table."""

    rival: Rival = "SB3"
    """The library that has the row's learner."""

    @property
    def config(self) -> str:
        return f"{self.folder}/{self.config_name}.yaml"

    @property
    def config_name(self) -> str:
        return self.name.partition("-")[0]

    @property
    def peer(self) -> str:
        """The name of the rival's scores, with the same values in the same environment."""
        return f"{self.name}+{self.rival.lower()}"

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages whose versions the score depends on, beside torch and NumPy."""
        scheme, _, name = self.scored_on.partition(":")
        if scheme == "pettingzoo":
            return (name.partition(".")[0],)
        if scheme == "gymma":
            return ("rware" if "rware" in name else "lbforaging",)
        if scheme == "gym":
            return ("gymnasium", *(engine for begin, engine in _ENGINES.items() if name.startswith(begin)))
        return ()

    def learn(self, run_id: str, seed: int) -> list[str]:
        """Arguments of the command that trains it."""
        arguments = self.trained_args and ("--env-args", *self.trained_args)
        return [
            "learn",
            self.config,
            f"--run-id={run_id}",
            f"--env={self.trained_on}",
            f"--seed={seed}",
            *(f"--set={change}" for change in self.settings),
            *arguments,
        ]

    def evaluate(self, run_id: str) -> list[str]:
        """Arguments of the command that scores its last checkpoint."""
        arguments = (*["--stochastic"][: self.drawn], *(self.env_args and ("--env-args", *self.env_args)))
        count = self.agents * self.episodes
        return ["evaluate", run_id, f"--env={self.scored_on}", f"--episodes={count}", "--json", *arguments]

    def score(self, said: Mapping[str, Any]) -> float:
        """From the object of ``evaluate --json``."""
        behaviors = list(said["behaviors"].values())
        if self.unit == "team":
            return float(behaviors[0]["mean_group_return"])
        mean = sum(float(each["mean_return"]) for each in behaviors) / len(behaviors)
        return 6.0 * mean - 3.0 * self.steps if self.unit == "S" else mean


_SPREAD, _MPE2 = "sim:spread", "pettingzoo:mpe2.simple_spread_v3"
_COPIES = ("--copies", "50")
_SPEAKER = "pettingzoo:mpe2.simple_speaker_listener_v4"
_SWITCH2 = "sim:switch2"
_EPYMARL = "EPyMARL, older MPE"


def _switch(name: str, *env_args: str, agents: int = 2) -> Row:
    """A row of values in the corridor of so many agents."""
    task = f"switch{agents}"
    scene = f"sim:{task}"
    return Row(
        f"{task}_{name}", task, scene, scene, agents, 500, unit="team", env_args=env_args, picture="values"
    )


def _spread(name: str, published: tuple[float, float] | None = None, *, picture: str = "") -> Row:
    """A row of spread, trained in our scene and scored on MPE's. published: score, millions of steps."""
    return Row(
        f"spread_{name}", "spread", _SPREAD, _MPE2, 3, 1000,
        published=published and Published(published[0], _EPYMARL, published[1]), env_args=_COPIES, picture=picture,
    )  # fmt: skip


_FORAGING = {
    ("10x10-3p-3f", "ippo"): 0.98,
    ("10x10-3p-3f", "mappo"): 0.99,
    ("10x10-3p-3f", "idqn"): 0.93,
    ("10x10-3p-3f", "vdn"): 0.84,
    ("10x10-3p-3f", "qmix"): 0.84,
    ("8x8-2p-2f-coop", "idqn"): 1.0,
    ("8x8-2p-2f-coop", "vdn"): 1.0,
    ("8x8-2p-2f-coop", "qmix"): 0.96,
    ("15x15-4p-3f", "idqn"): 0.54,
    ("15x15-4p-3f", "vdn"): 0.38,
    ("15x15-4p-3f", "qmix"): 0.15,
}
"""EPyMARL's scores, after 2 M steps of the environment, or 20 M with policies."""


def _foraging(name: str, field: str, agents: int, *settings: str, version: int = 3) -> Row:
    """A row of foraging: a team's return is the share of the food that it collected.

    version: of the environment. EPyMARL's scores are those of version 2; fields with ``coop`` are the same in both.
    """
    module, task, row = "", f"foraging {field}", f"lbf_{name}-{field}"
    if version == 2:
        module, task, row = "benchmarks.scores.foraging_v2:", f"{task}, v2", f"{row}-v2"
    scene = f"gymma:{module}Foraging-{field}-v{version}"
    drawn = name in ("ippo", "mappo")
    published = None
    if (version == 2 or field.endswith("coop")) and (score := _FORAGING.get((field, name))):
        published = Published(score, "EPyMARL, greedy", agents * (20 if drawn else 2))
    return Row(
        row, f"{task}, drawn" if drawn else task, scene, scene, agents, 500,
        unit="team", env_args=("--copies", "16", "--steps", "50"), settings=settings, drawn=drawn, published=published,
    )  # fmt: skip


def _foraging_values(name: str, field: str, agents: int, *, version: int = 3) -> Row:
    """A row of values with EPyMARL's budget, which counts in steps of the environment.

    Two million of them, exploration over a tenth, and a gradient step of 32 episodes for each episode of 25 steps.
    """
    changes = {
        "max_steps": 2_000_000 * agents,
        "hyperparameters.exploration_steps": 200_000 * agents,
        "hyperparameters.steps_per_update": 25 * agents,
        "hyperparameters.batch_size": 800,
    }
    settings = (f"default_settings.{key}={value}" for key, value in changes.items())
    return _foraging(name, field, agents, *settings, version=version)


def _speaker_listener(name: str, folder: str = "configs") -> Row:
    """A row of speaker and listener."""
    return Row(
        f"speaker_listener_{name}", "speaker and listener", _SPEAKER, _SPEAKER, 1, 1000,
        unit="agent", env_args=_COPIES, folder=folder,
    )  # fmt: skip


GROUPS = (
    _spread("mappo", (-9.76, 60)),
    _spread("ippo", (-9.81, 60)),
    _spread("poca"),
    _spread("coma", (-21.55, 60)),
    Row(
        "spread_mappo_seed", "spread, 50 steps", _SPREAD, _SPREAD, 3, 1000,
        unit="S", env_args=("--copies", "16", "--steps", "50"), steps=50,
    ),
    _spread("idqn", (-9.61, 6), picture="values"),
    _spread("vdn", (-9.34, 6), picture="values"),
    _spread("qmix", (-8.60, 6), picture="values"),
    _spread("maddpg", (-11.12, 6), picture="values"),
    Row("switch2_mappo", "switch2", _SWITCH2, _SWITCH2, 2, 500, unit="team"),
    _switch("vdn", "--clock"),
    _switch("qmix", "--clock"),
    _switch("sic"),
    _switch("dqn_share"),
    _switch("idqn", "--clock"),
    _switch("dqn_consensus"),
    _switch("vdn", "--clock", agents=4),
    _switch("dqn_share", agents=4),
    _speaker_listener("ippo", COMPARED),
    _speaker_listener("mappo"),
    _speaker_listener("maddpg"),
    _speaker_listener("vdn", COMPARED),
    _speaker_listener("qmix"),
    *(
        _foraging(name, field, agents)
        for field, agents in (("8x8-2p-3f", 2), ("10x10-3p-3f", 3), ("15x15-3p-4f", 3))
        for name in ("ippo", "mappo")
    ),
    *(_foraging(name, "8x8-2p-3f", 2) for name in ("vdn", "qmix")),
    *(_foraging(name, "10x10-3p-3f", 3, version=2) for name in ("ippo", "mappo")),
    *(_foraging_values(name, "8x8-2p-2f-coop", 2) for name in ("vdn", "qmix")),
    _foraging_values("vdn", "10x10-3p-3f", 3),
    *(
        _foraging_values(name, field, agents, version=2)
        for field, agents in (("10x10-3p-3f", 3), ("15x15-4p-3f", 4))
        for name in ("vdn", "qmix")
    ),
    _foraging("idqn", "8x8-2p-2f-coop", 2, "default_settings.max_steps=2000000"),
    _foraging("idqn", "10x10-3p-3f", 3),
    _foraging("idqn", "10x10-3p-3f", 3, version=2),
    _foraging("idqn", "15x15-4p-3f", 4, "default_settings.max_steps=8000000", version=2),
    Row(
        "rware_mappo", "warehouse tiny-4ag, drawn", "gymma:rware-tiny-4ag-v2", "gymma:rware-tiny-4ag-v2", 4, 100,
        unit="team", drawn=True, published=Published(49.42, "EPyMARL, v1", 160, 1.2),
    ),
)  # fmt: skip
"""Groups of agents."""


def _single(
    name: str, env: str, published: Published | None = None, *,
    trained_args: tuple[str, ...] = (), scored_args: tuple[str, ...] = (), folder: str = "configs",
    episodes: int = 100, digits: int = 0, copies: int = 10, rival: Rival = "SB3",
) -> Row:  # fmt: skip
    """One agent in one of Gymnasium's environments.

    Args:
        trained_args: for the environment of the training, beside those of the configuration.
        scored_args: for that of the evaluation; as trained_args where empty.
        copies: of the environment, in the evaluation.
    """
    gym, task = f"gym:{env}", env.rpartition(":")[2]
    copied = ("--agents", str(copies)) if copies > 1 else ()
    return Row(
        name, task, gym, gym, 1, episodes, unit="agent", published=published,
        env_args=(*copied, *(scored_args or trained_args)), trained_args=trained_args, folder=folder,
        digits=digits, rival=rival,
    )  # fmt: skip


def _critics(
    task: str, env: str, sac: tuple[float, float], crossq: tuple[float, float], *env_args: str
) -> tuple[Row, Row]:
    """The bundled configuration, which is CrossQ's, and plain SAC's. sac, crossq: mean and deviation of ten seeds."""
    of_crossq = Published(crossq[0], "CrossQ's authors, v4", 0.3, crossq[1])
    of_sac = Published(sac[0], "SimbaV2's files, v4", 0.3, sac[1])
    return (
        _single(f"{task}_sac", env, of_crossq, trained_args=env_args, rival="SBX"),
        _single(f"{task}_plain_sac", env, of_sac, trained_args=env_args, folder=COMPARED),
    )


_NO_CONTACT_FORCES = ("--env-kwargs", '{"include_cfrc_ext_in_observation": false}')
"""27 observations in the place of 105, as in the versions before v5."""

SINGLE = (
    _single("halfcheetah", "HalfCheetah-v5", Published(5819.1, "Zoo, v3", 1)),
    _single("hopper", "Hopper-v5", Published(2410.4, "Zoo, v3", 1)),
    _single("walker2d", "Walker2d-v5", Published(3479.0, "Zoo, v3", 1)),
    _single("ant", "Ant-v5", Published(1327.0, "Zoo, v3", 1), scored_args=_NO_CONTACT_FORCES),
    _single("lunarlander", "LunarLander-v3", Published(242.1, "Zoo, v2", 1)),
    _single("bipedalwalker", "BipedalWalker-v3", Published(287.9, "Zoo, v3", 5)),
    *_critics("halfcheetah", "HalfCheetah-v5", (8593.0, 964.0), (10001.0, 1083.0)),
    *_critics("hopper", "Hopper-v5", (2160.0, 981.0), (2633.0, 294.0)),
    *_critics("walker2d", "Walker2d-v5", (2470.0, 1571.0), (5714.0, 508.0)),
    *_critics("ant", "Ant-v5", (3532.0, 1561.0), (5650.0, 786.0), *_NO_CONTACT_FORCES),
    _single("doorkey", "MiniGrid-DoorKey-5x5-v0", Published(0.964, "Zoo", 0.1), digits=3),
    _single("multiroom", "MiniGrid-MultiRoom-N4-S5-v0", Published(0.0, "Zoo", 10), digits=3),
    _single(
        "pong",
        "ale_py:PongNoFrameskip-v4",
        Published(21.0, "Zoo", 10),
        episodes=24,
        digits=1,
        copies=8,
        scored_args=("--wrap", "AtariPreprocessing", "--wrap", "FrameStackObservation:4"),
    ),
    _single("cartpole_dqn", "CartPole-v1", episodes=500, digits=2, copies=1),
    _single("lunarlander_dqn", "LunarLander-v3", episodes=500, digits=2, copies=1),
    _single("pendulum_ddpg", "Pendulum-v1", episodes=500, digits=2, copies=1),
    _single("pendulum_td3", "Pendulum-v1", episodes=500, digits=2, copies=1),
)
"""Single agents. The sources: the tables of RL Baselines3 Zoo, and the evaluations that SimbaV2's authors publish."""


def _scene(name: str, agents: int, episodes: int) -> Row:
    """One of ML-Agents' scenes, as it is bundled."""
    return Row(name, name, f"sim:{name}", f"sim:{name}", 1, agents * episodes, unit="agent", digits=3)


SCENES = (_scene("3dball", 12, 10), _scene("basic", 1, 100), _scene("hallway", 16, 20))
"""ML-Agents' own scenes: rows of less than a minute or two."""

ROWS = (*GROUPS, *SINGLE, *SCENES)
