"""The cases: a world, the settings of the trainer, and the mean return that must be exceeded."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from learning.worlds import BEHAVIOR, NAME, World

Settings = Mapping[str, Any]
"""One behavior of the configuration, as the YAML has it."""

PPO: Settings = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "learning_rate": 5e-3,
        "learning_rate_schedule": "constant",
        "batch_size": 16,
        "buffer_size": 64,
    },
    "network_settings": {"num_layers": 1, "hidden_units": 32},
    "summary_freq": 500,
    "max_steps": 3000,
}
SAC: Settings = {
    "trainer_type": "sac",
    "hyperparameters": {
        "learning_rate": 5e-3,
        "learning_rate_schedule": "constant",
        "batch_size": 8,
        "buffer_size": 5000,
        "buffer_init_steps": 100,
        "tau": 0.01,
        "init_entcoef": 0.01,
    },
    "network_settings": {"num_layers": 1, "hidden_units": 16},
    "summary_freq": 100,
    "max_steps": 1000,
}
POCA: Settings = {**PPO, "trainer_type": "poca"}
BASES: Mapping[str, Settings] = {"ppo": PPO, "sac": SAC, "poca": POCA}

NUMBERS, CHOICES = (1, 0), (0, 1)
"""How many continuous and discrete actions."""

DEMONSTRATIONS = "expert.demo"
"""Stands in the settings for the recording of an expert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One of the learning tests."""

    name: str
    """The name of ML-Agents' test without ``test_``, and its variant in brackets."""

    world: World
    settings: Settings
    threshold: float | None
    """The mean of the last five returns must be greater, of every side; None where it shall only come to its end."""

    one_fails: bool = False
    """One side must be above the threshold and one below."""

    demonstrated: World | None = None
    """In which world an expert is recorded first."""

    @property
    def changes(self) -> Settings:
        """Differences from the settings that all tests of this trainer share."""
        return _changes(self.settings, BASES[self.settings["trainer_type"]])

    def met_by(self, finals: Sequence[float | None]) -> bool:
        """Whether these means of the last returns, one for each side, are what is asked for; None: too few episodes."""
        if self.threshold is None:
            return True
        means = [mean for mean in finals if mean is not None]
        if len(means) < len(finals):
            return False
        if self.one_fails:
            return min(means) < self.threshold < max(means)
        return min(means) > self.threshold


def cases() -> list[Case]:
    """All of them, in the order of ML-Agents' files. No two have the same name."""
    return [*_ppo(), *_sac(), *_poca(), *_ghosts(), *_imitation(), *_hybrid()]


def _ppo() -> Iterator[Case]:
    for actions in (CHOICES, NUMBERS):
        yield _case("simple_ppo", actions, PPO)
    for actions in ((0, 2), (2, 0)):
        settings = _changed(PPO, batch_size=64, buffer_size=640, max_steps=10_000)
        yield _case("2d_ppo", actions, settings, step_size=0.8)
    for pictures in (1, 2):
        for actions in (CHOICES, NUMBERS):
            for shared in (True, False):
                settings = _changed(PPO, learning_rate=3e-4, shared_critic=shared)
                yield _case("visual_ppo", actions, settings, vectors=0, pictures=pictures)
    for actions in (CHOICES, NUMBERS):
        for lists in (1, 2):
            for vectors in (0, 1):
                for pictures in (0, 1):
                    settings = _changed(PPO, learning_rate=3e-4, goal_conditioning_type="hyper")
                    sensors = {"vectors": vectors, "pictures": pictures, "entity_lists": lists}
                    yield _case("var_len_obs_and_goal_ppo", actions, settings, **sensors, goal_sensor=0)
    yield from _encoders("visual_advanced_ppo", PPO, learning_rate=3e-4, hidden_units=16, max_steps=900)
    for actions in (CHOICES, NUMBERS):
        changes = {"learning_rate": 1e-3, "batch_size": 64, "buffer_size": 128, "max_steps": 6000}
        settings = _changed(PPO, **changes, memory={"memory_size": 16})
        yield _case("recurrent_ppo", actions, settings, fades=True)


def _sac() -> Iterator[Case]:
    for actions in (CHOICES, NUMBERS):
        yield _case("simple_sac", actions, SAC)
    for actions in ((0, 2), (2, 0)):
        settings = _changed(SAC, buffer_init_steps=2000, max_steps=3000)
        yield _case("2d_sac", actions, settings, threshold=0.8, step_size=0.8)
    pixels = _changed(SAC, batch_size=16, learning_rate=3e-4)
    for pictures in (1, 2):
        for actions in (CHOICES, NUMBERS):
            yield _case("visual_sac", actions, pixels, vectors=0, pictures=pictures)
    for actions in (CHOICES, NUMBERS):
        for lists in (1, 2):
            yield _case("var_len_obs_sac", actions, pixels, vectors=0, entity_lists=lists)
    changes = {"batch_size": 16, "learning_rate": 3e-4, "buffer_init_steps": 0, "max_steps": 100}
    yield from _encoders("visual_advanced_sac", SAC, **changes)
    for actions, step_size in ((CHOICES, 0.2), (NUMBERS, 0.5)):
        yield _case("recurrent_sac", actions, _RECURRENT_SAC, fades=True, step_size=step_size)


def _poca() -> Iterator[Case]:
    for actions in (CHOICES, NUMBERS):
        yield _case("simple_poca", actions, POCA, agents=2)
    for pictures in (1, 2):
        yield _case("visual_poca", CHOICES, _changed(POCA, learning_rate=3e-4), agents=2, pictures=pictures)
    for lists in (1, 2):
        for vectors in (0, 1):
            for pictures in (0, 1):
                changes = {"learning_rate": 3e-4, "goal_conditioning_type": "hyper", "max_steps": 25_000}
                sensors = {"vectors": vectors, "pictures": pictures, "entity_lists": lists}
                settings = _changed(POCA, **changes)
                name = "var_len_obs_and_goal_poca"
                yield _case(name, CHOICES, settings, agents=2, **sensors, goal_sensor=0)
    changes = {"learning_rate": 1e-3, "batch_size": 64, "buffer_size": 128, "memory": {"memory_size": 16}}
    for actions in (CHOICES, NUMBERS):
        yield _case("recurrent_poca", actions, _changed(POCA, **changes, max_steps=500), None, agents=2)
        yield _case("recurrent_poca", actions, _changed(POCA, **changes, max_steps=6000), fades=True)


def _ghosts() -> Iterator[Case]:
    """Two teams of one behavior, and two behaviors."""
    teams = (BEHAVIOR, f"{NAME}?team=1")
    for name, swap_steps in (("simple_ghost", 2000), ("simple_ghost_fails", 4000)):
        play = {"play_against_latest_model_ratio": 1.0, "save_steps": 2000, "swap_steps": swap_steps}
        yield from _sides(name, teams, play, max_steps=2500)
    behaviors = (BEHAVIOR, "Opponent?team=1")
    play = {"play_against_latest_model_ratio": 1.0, "save_steps": 10_000, "swap_steps": 10_000}
    yield from _sides("simple_asymm_ghost", behaviors, {**play, "team_change": 400}, max_steps=4000)
    play = {"play_against_latest_model_ratio": 0.0, "save_steps": 5000, "swap_steps": 5000}
    yield from _sides("simple_asymm_ghost_fails", behaviors, {**play, "team_change": 2000}, max_steps=3000)


def _sides(name: str, behaviors: tuple[str, ...], self_play: Settings, max_steps: int) -> Iterator[Case]:
    settings = _changed(PPO, self_play=self_play, max_steps=max_steps)
    for actions in (CHOICES, NUMBERS):
        case = _case(name, actions, settings, behaviors=behaviors)
        yield replace(case, one_fails=name.endswith("_fails"))


def _imitation() -> Iterator[Case]:
    for base in (PPO, SAC):
        for actions in (CHOICES, NUMBERS):
            settings = _changed(base, **_imitating(1000), max_steps=500)
            yield _case(f"gail_{base['trainer_type']}", actions, settings)
    pixels = {"vectors": 0, "pictures": 1}
    for actions in (CHOICES, NUMBERS):
        settings = _changed(PPO, **_imitating(1500, gamma=0.8), learning_rate=1e-3, max_steps=1000)
        yield _case("gail_visual_ppo", actions, settings, step_size=0.3, **pixels)
    for actions in (CHOICES, NUMBERS):
        changes = {"learning_rate": 3e-4, "batch_size": 16, "max_steps": 500}
        yield _case("gail_visual_sac", actions, _changed(SAC, **_imitating(1000), **changes), **pixels)


def _imitating(cloning_steps: int, **gail: Any) -> dict[str, Any]:
    """No reward of the task, an adversary's instead; and cloning."""
    networks = {"network_settings": {"hidden_units": 32}}
    return {
        "reward_signals": {"gail": {**gail, **networks, "demo_path": DEMONSTRATIONS}},
        "behavioral_cloning": {"steps": cloning_steps, "demo_path": DEMONSTRATIONS},
    }


def _hybrid() -> Iterator[Case]:
    pairs = ((1, 1), (2, 2), (1, 2), (2, 1))
    for actions in pairs:
        settings = _changed(PPO, learning_rate=1e-3, batch_size=64, buffer_size=1024, max_steps=20_000)
        yield _case("hybrid_ppo", actions, settings, step_size=0.8)
    for pictures in (1, 2):
        settings = _changed(PPO, learning_rate=1e-4, batch_size=64, buffer_size=1024, max_steps=8000)
        yield _case("hybrid_visual_ppo", (1, 1), settings, vectors=0, pictures=pictures)
    changes = {"learning_rate": 1e-3, "batch_size": 64, "buffer_size": 512, "max_steps": 5000}
    settings = _changed(PPO, **changes, memory={"memory_size": 16})
    yield _case("hybrid_recurrent_ppo", (1, 1), settings, fades=True, step_size=0.5)
    for actions in pairs:
        changes = {"batch_size": 256, "buffer_size": 50_000, "buffer_init_steps": 0, "max_steps": 10_000}
        yield _case("hybrid_sac", actions, _changed(SAC, **changes), step_size=0.8)
    for pictures in (1, 2):
        changes = {"learning_rate": 3e-4, "batch_size": 128, "buffer_size": 50_000, "max_steps": 3000}
        yield _case("hybrid_visual_sac", (1, 1), _changed(SAC, **changes), vectors=0, pictures=pictures)
    yield _case("hybrid_recurrent_sac", (1, 1), _RECURRENT_SAC, fades=True, step_size=0.5)


def _encoders(test: str, base: Settings, **changes: Any) -> Iterator[Case]:
    shapes = {"resnet": (3, 36, 36), "nature_cnn": (3, 36, 36), "match3": (5, 5, 5)}
    for encoder, shape in shapes.items():
        for pictures in (1, 2):
            world = {"vectors": 0, "pictures": pictures, "picture_shape": shape, "step_size": 0.5}
            yield _case(test, CHOICES, _changed(base, **changes, vis_encode_type=encoder), 0.5, **world)


def _case(
    test: str, actions: tuple[int, int], settings: Settings, threshold: float | None = 0.9, **world: Any
) -> Case:
    continuous, discrete = actions
    shown = World(continuous=continuous, discrete=discrete, **world)
    return Case(
        name=f"{test}[{_variant(shown, settings)}]",
        world=shown,
        settings=settings,
        threshold=threshold,
        # An expert's steps have the usual size, whatever the learner's.
        demonstrated=replace(shown, step_size=0.2) if "behavioral_cloning" in settings else None,
    )


def _variant(world: World, settings: Settings) -> str:
    """The differences between variants of any test, in few words."""
    actions = [("continuous", world.continuous), ("discrete", world.discrete)]
    sensors = [("vector", world.vectors), ("picture", world.pictures), ("list", world.entity_lists)]
    parts = [kind if count == 1 else f"{count} {kind}" for kind, count in actions if count]
    if world.pictures or world.entity_lists:
        parts += [f"{count} {kind}{'s' * (count > 1)}" for kind, count in sensors if count]
    parts += [settings["network_settings"].get("vis_encode_type", "")]
    parts += ["shared critic" if settings["hyperparameters"].get("shared_critic") else ""]
    parts += [f"{world.agents} agents" if world.agents > 1 else ""]
    return ", ".join(part for part in parts if part)


def _changed(base: Settings, **changes: Any) -> Settings:
    """The settings with these keys changed, each in the section to which it belongs."""
    settings = dict(copy.deepcopy(base))
    for key, value in changes.items():
        section = next((name for name, keys in _SECTIONS.items() if key in keys), None)
        (settings if section is None else settings[section])[key] = value
    return settings


_HYPER = {*PPO["hyperparameters"], *SAC["hyperparameters"], "shared_critic", "steps_per_update"}
_NETWORK = {*PPO["network_settings"], "vis_encode_type", "goal_conditioning_type", "memory"}
_SECTIONS = {"hyperparameters": _HYPER, "network_settings": _NETWORK}

_RECURRENT_SAC = _changed(
    SAC,
    learning_rate=3e-4,
    batch_size=256,
    buffer_init_steps=1000,
    steps_per_update=2,
    max_steps=4000,
    memory={"memory_size": 16, "sequence_length": 16},
)


def _changes(settings: Settings, base: Settings) -> Settings:
    changes: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            changes |= _changes(value, base[key])
        elif value != base.get(key):
            changes |= value if key == "memory" else {key: value}
    return changes
