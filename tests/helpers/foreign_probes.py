"""Probe environments in the form of every library, whose observations, masks, rewards and ends are known beforehand.

An environment's episodes are pure functions of its seed, so what a learner gets can be told without asking it. At each
call it spoils all arrays that it has ever returned: whoever keeps one of them, instead of its values, gets nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from pettingzoo import AECEnv, ParallelEnv

Space = spaces.Space[Any]


@dataclass(frozen=True)
class Content:
    """A kind of observation: how it is drawn, and what its sensors must show, by the names of members."""

    space: Space
    draw: Callable[[np.random.Generator], Any]
    shown: Callable[[Any], dict[str, Any]]


def _one_hot(size: int, index: int) -> list[float]:
    return [float(i == index) for i in range(size)]


def _pixels(high: int, dtype: Any, shape: tuple[int, ...]) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.integers(0, high + 1, shape).astype(dtype)


def _nested(rng: np.random.Generator) -> Any:
    return {
        "arm": (np.array(rng.integers(-1, 3)), rng.integers(0, 2, 2).astype(np.int8)),
        "eye": rng.normal(size=(1, 2)),
    }


CONTENTS = {
    "box": Content(
        spaces.Box(-np.inf, np.inf, (2,), np.float64),
        lambda rng: rng.normal(size=2),
        lambda seen: {"": np.float32(seen)},
    ),
    "matrix": Content(
        spaces.Box(0, 9, (2, 3), np.int64),
        lambda rng: rng.integers(0, 10, (2, 3)),
        lambda seen: {"": np.ravel(seen)},
    ),
    "discrete": Content(
        spaces.Discrete(4, start=-1),
        lambda rng: np.array(rng.integers(-1, 3)),
        lambda seen: {"": _one_hot(4, int(seen) + 1)},
    ),
    "multi_discrete": Content(
        spaces.MultiDiscrete([3, 2], start=[5, 0]),
        lambda rng: np.array([rng.integers(5, 8), rng.integers(0, 2)]),
        lambda seen: {"": _one_hot(3, seen[0] - 5) + _one_hot(2, seen[1])},
    ),
    "multi_binary": Content(
        spaces.MultiBinary(3),
        lambda rng: rng.integers(0, 2, 3).astype(np.int8),
        lambda seen: {"": seen},
    ),
    "nested": Content(
        spaces.Dict(
            {
                "arm": spaces.Tuple([spaces.Discrete(4, start=-1), spaces.MultiBinary(2)]),
                "eye": spaces.Box(-np.inf, np.inf, (1, 2), np.float64),
            }
        ),
        _nested,
        lambda seen: {
            "arm.0": _one_hot(4, int(seen["arm"][0]) + 1),
            "arm.1": seen["arm"][1],
            "eye": np.ravel(seen["eye"]).astype(np.float32),
        },
    ),
    "reserved": Content(
        spaces.Dict(dict.fromkeys(("global_state", "observation"), spaces.Box(-9, 9, (2,), np.float64))),
        lambda rng: {"global_state": rng.uniform(-9, 9, 2), "observation": rng.uniform(-9, 9, 2)},
        lambda seen: {name: np.float32(values) for name, values in seen.items()},
    ),
    "colours": Content(
        spaces.Box(0, 255, (20, 21, 3), np.uint8),
        _pixels(255, np.uint8, (20, 21, 3)),
        lambda seen: {"": np.transpose(seen, (2, 0, 1))},
    ),
    "ids": Content(
        spaces.Box(0, 2, (20, 20, 1), np.uint8),
        _pixels(2, np.uint8, (20, 20, 1)),
        lambda seen: {"": np.transpose(seen, (2, 0, 1)) / np.float32(2)},
    ),
    "float_colours": Content(
        spaces.Box(0, 255, (20, 20, 3), np.float32),
        _pixels(255, np.float32, (20, 20, 3)),
        lambda seen: {"": np.transpose(seen, (2, 0, 1)) / np.float32(255)},
    ),
}


@dataclass(frozen=True)
class Control:
    """A kind of action: what of it is continuous and discrete, and what it is as a list of numbers."""

    space: Space
    continuous: int
    branches: tuple[int, ...]
    numbers: Callable[[Any], list[float]]
    """Of an action of the space."""
    meant: Callable[[Sequence[float], Sequence[int]], list[float]]
    """Those numbers for an action on the wire."""


CONTROLS = {
    "discrete": Control(spaces.Discrete(3, start=4), 0, (3,), lambda a: [float(a)], lambda c, d: [d[0] + 4]),
    "multi_discrete": Control(
        spaces.MultiDiscrete([3, 2], start=[1, 0]),
        0,
        (3, 2),
        lambda a: [*map(float, a)],
        lambda c, d: [d[0] + 1, d[1]],
    ),
    "multi_binary": Control(
        spaces.MultiBinary(2), 0, (2, 2), lambda a: [*map(float, a)], lambda c, d: [d[0], d[1]]
    ),
    "box": Control(
        spaces.Box(np.array([-2, 10], np.float32), np.array([2, 20], np.float32)),
        2,
        (),
        lambda a: [*map(float, a)],
        lambda c, d: [2 * c[0], 15 + 5 * c[1]],
    ),
    "half_bounded": Control(
        spaces.Box(np.array([5, -np.inf]), np.array([np.inf, -3]), dtype=np.float64),
        2,
        (),
        lambda a: [*map(float, a)],
        lambda c, d: [6 + c[0], -4 + c[1]],
    ),
    "whole": Control(
        spaces.Box(0, 255, (1,), np.uint8),
        1,
        (),
        lambda a: [float(a[0])],
        lambda c, d: [np.rint(127.5 * (c[0] + 1))],
    ),
    "dict": Control(
        spaces.Dict(
            {
                "turn": spaces.Box(-1, 1, (1,)),
                "gear": spaces.Discrete(3),
                "arms": spaces.MultiDiscrete([2, 4]),
            }
        ),
        1,
        (2, 4, 3),
        lambda a: [*map(float, a["arms"]), float(a["gear"]), float(a["turn"][0])],
        lambda c, d: [d[0], d[1], d[2], c[0]],
    ),
}


def flat(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    """One array for all branches."""
    return np.array([value for branch in allowed for value in branch], np.int8)


def flat_bools(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    return flat(allowed, control).astype(np.bool_)


def by_branch(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    """A tuple of arrays, as ``MultiDiscrete.sample`` takes it."""
    arrays = tuple(np.array(branch, np.int8) for branch in allowed)
    return arrays if len(arrays) > 1 else arrays[0]


def padded(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    """Rows of one array, each as long as the longest branch."""
    longest = max(map(len, allowed))
    return np.array([[*branch, *[0] * (longest - len(branch))] for branch in allowed], np.float32)


def by_bit(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    """As ``MultiBinary.sample`` takes it: 0 or 1 for a value that is forced, 2 for a free one."""
    return np.array([2 if all(bit) else int(np.argmax(bit)) for bit in allowed], np.int8)


def by_member(allowed: Sequence[Sequence[int]], control: Control) -> Any:
    """As ``Dict.sample`` takes it, for the control called dict."""
    return {"arms": (np.array(allowed[0]), np.array(allowed[1])), "gear": np.array(allowed[2]), "turn": None}


MASK_FORMS = {
    "flat": (flat, ("discrete", "multi_discrete", "multi_binary", "dict")),
    "bools": (flat_bools, ("discrete", "multi_discrete")),
    "branches": (by_branch, ("multi_discrete",)),
    "padded": (padded, ("multi_discrete",)),
    "bits": (by_bit, ("multi_binary",)),
    "members": (by_member, ("dict",)),
}
"""How masks are written, and the controls that they are written for."""

PLACES = ("info", "member", "method")
"""Where masks are offered: in infos, as a member of observations, or by a method of the environment."""


@dataclass(frozen=True)
class Script:
    """Everything that a probe environment does."""

    content: str = "box"
    control: str = "discrete"
    mask_form: str = ""
    mask_place: str = "info"
    mask_key: str = "action_mask"
    trouble: str = ""

    @property
    def action(self) -> Control:
        return CONTROLS[self.control]

    def observation_space(self) -> Space:
        inner = CONTENTS[self.content].space
        if not (self.mask_form and self.mask_place == "member"):
            return inner
        choices = sum(self.action.branches)
        return spaces.Dict({"observation": inner, self.mask_key: spaces.MultiBinary(choices)})

    def length(self, seed: int, episode: int) -> float:
        if self.trouble == "endless":
            return np.inf
        return 1 + (seed // 1000 + episode) % 3

    def ends(self, seed: int, episode: int, time: int) -> tuple[bool, bool]:
        """Terminated and truncated, as the environment says it."""
        over = time >= self.length(seed, episode)
        kind = (seed // 1000 + 2 * episode) % 3
        return over and kind != 1, over and kind != 0

    def drawn(self, seed: int, episode: int, time: int, agent: int) -> Any:
        return CONTENTS[self.content].draw(np.random.default_rng([seed % 2**31, episode, time, agent]))

    def allowed(self, seed: int, episode: int, time: int, agent: int) -> list[list[int]]:
        """For each branch what is allowed, at least one choice."""
        rng = np.random.default_rng([seed % 2**31, episode, time, agent, 1])
        branches = [rng.integers(0, 2, size).tolist() for size in self.action.branches]
        for branch in branches:
            branch[int(rng.integers(len(branch)))] = 1
        return branches

    def mask(self, seed: int, episode: int, time: int, agent: int) -> Any:
        return MASK_FORMS[self.mask_form][0](self.allowed(seed, episode, time, agent), self.action)

    def reward(self, numbers: Sequence[float], time: int, agent: int) -> float:
        return sum((i + 1) * number for i, number in enumerate(numbers)) + time + 10 * agent


def is_as_sampled(action: Any, sample: Any) -> bool:
    """Whether an action is made of the same types as a sample of its space."""
    if isinstance(sample, dict):
        return all(is_as_sampled(action[key], sample[key]) for key in sample)
    if isinstance(sample, tuple):
        return all(map(is_as_sampled, action, sample))
    return type(action) is type(sample) and action.dtype == sample.dtype


class Spoiler:
    """The part of a probe environment that remembers arrays which it returned, and spoils them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.returned: list[Any] = []
        self.seed, self.episode, self.time = 0, -1, 0

    def begin(self, seed: int | None) -> None:
        self.spoil()
        self.seed = self.seed if seed is None else seed
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0

    def spoil(self) -> None:
        for array in self.returned:
            array.fill(113)

    def hand_out(self, value: Any) -> Any:
        """A value to return; all arrays in it are remembered."""
        if isinstance(value, dict):
            return {key: self.hand_out(member) for key, member in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(self.hand_out(member) for member in value)
        if isinstance(value, np.ndarray):
            self.returned.append(value)
        return value

    def observation(self, agent: int = 0) -> Any:
        script = self.script
        seen = script.drawn(self.seed, self.episode, self.time, agent)
        if script.mask_form and script.mask_place == "member":
            seen = {"observation": seen, script.mask_key: self.mask(agent)}
        return self.hand_out(troubled(seen, script))

    def mask(self, agent: int = 0) -> Any:
        return self.script.mask(self.seed, self.episode, self.time, agent)

    def info(self, agent: int = 0) -> dict[str, Any]:
        script = self.script
        if script.trouble in BAD_MASKS:
            return self.hand_out(BAD_MASKS[script.trouble][0](script))
        if script.mask_form and script.mask_place == "info":
            return {script.mask_key: self.hand_out(self.mask(agent))}
        return {}

    def act(self, action: Any, agent: int = 0) -> float:
        space = self.script.action.space
        assert space.contains(action), f"{action!r} is not in {space}"
        assert is_as_sampled(action, space.sample()), f"{action!r} is not made as by {space}"
        if self.script.mask_form and isinstance(space, spaces.Discrete):
            [allowed] = self.script.allowed(self.seed, self.episode, self.time, agent)
            assert allowed[action - space.start], f"{action} is forbidden"
        return self.script.reward(self.script.action.numbers(action), self.time + 1, agent)

    def ends(self) -> tuple[bool, bool]:
        return self.script.ends(self.seed, self.episode, self.time)

    @property
    def has_method(self) -> bool:
        return bool(self.script.mask_form) and self.script.mask_place == "method"


class Single(gymnasium.Env[Any, Any]):
    """One agent, as Gymnasium has it."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, **script: Any) -> None:
        self.core = Spoiler(Script(**script))
        self.observation_space = self.core.script.observation_space()
        self.action_space = self.core.script.action.space
        if self.core.has_method:
            self.action_masks = self._masks  # as Stable-Baselines3-contrib wants it

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.core.begin(seed)
        return self.core.observation(), self.core.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        reward = self.core.act(action)
        self.core.spoil()
        self.core.time += 1
        return (
            self.core.observation(),
            self.core.hand_out(np.array(reward)),
            *self.core.ends(),
            self.core.info(),
        )

    def _masks(self) -> Any:
        self.core.spoil()
        return self.core.hand_out(self.core.mask())


def vectorized(
    num_envs: int = 2, mode: str = "NEXT_STEP", copy: bool = False, processes: bool = False, **script: Any
) -> Any:
    """A vector environment of Gymnasium's own."""
    how: dict[str, Any] = {"autoreset_mode": AutoresetMode[mode], "copy": copy}
    make = [lambda: Single(**script)] * num_envs
    return AsyncVectorEnv(make, **how) if processes else SyncVectorEnv(make, **how)


AGENTS = ("left", "right")


class Parallel(ParallelEnv):  # type: ignore[type-arg]
    """Two agents that act at the same time, as PettingZoo has it."""

    metadata = {"name": "parallel"}  # noqa: RUF012 - as PettingZoo declares it

    def __init__(self, **script: Any) -> None:
        self.core = Spoiler(Script(**script))
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        if self.core.has_method:
            self.action_mask = self._mask

    def observation_space(self, agent: str) -> Space:
        return self.core.script.observation_space()

    def action_space(self, agent: str) -> Space:
        return self.core.script.action.space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.core.begin(seed)
        self.agents = list(AGENTS)
        return self._seen(), self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        rewards = {agent: np.array(self.core.act(actions[agent], i)) for i, agent in enumerate(AGENTS)}
        self.core.spoil()
        self.core.time += 1
        terminated, truncated = self.core.ends()
        if terminated or truncated:
            self.agents = []
        return (
            self._seen(),
            self.core.hand_out(rewards),
            dict.fromkeys(AGENTS, terminated),
            dict.fromkeys(AGENTS, truncated),
            self._infos(),
        )

    def state(self) -> Any:
        self.core.spoil()
        return self.core.hand_out(np.array([self.core.episode, self.core.time], np.float64))

    def _seen(self) -> dict[str, Any]:
        return {agent: self.core.observation(i) for i, agent in enumerate(AGENTS)}

    def _infos(self) -> dict[str, Any]:
        return {agent: self.core.info(i) for i, agent in enumerate(AGENTS)}

    def _mask(self, agent: str) -> Any:
        self.core.spoil()
        return self.core.hand_out(self.core.mask(AGENTS.index(agent)))


class InTurn(AECEnv):  # type: ignore[type-arg]
    """Two agents that act one after the other; time passes when both have acted, and both are paid then."""

    metadata = {"name": "in_turn", "is_parallelizable": False}  # noqa: RUF012 - as PettingZoo declares it

    def __init__(self, **script: Any) -> None:
        super().__init__()
        self.core = Spoiler(Script(**script))
        self.possible_agents = list(AGENTS)
        if self.core.has_method:
            self.action_mask = self._mask

    def observation_space(self, agent: str) -> Space:
        return self.core.script.observation_space()

    def action_space(self, agent: str) -> Space:
        return self.core.script.action.space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.core.begin(seed)
        self.agents = list(AGENTS)
        self.rewards = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos = {agent: self.core.info(i) for i, agent in enumerate(AGENTS)}
        self.agent_selection = AGENTS[0]
        self._earned: dict[str, float] = {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._earned[agent] = self.core.act(action, AGENTS.index(agent))
        self.core.spoil()
        self._cumulative_rewards[agent] = 0.0
        self.agent_selection = AGENTS[1 - AGENTS.index(agent)]
        self._clear_rewards()
        if agent == AGENTS[1]:
            self.core.time += 1
            terminated, truncated = self.core.ends()
            self.terminations, self.truncations = (
                dict.fromkeys(AGENTS, terminated),
                dict.fromkeys(AGENTS, truncated),
            )
            self.rewards = dict(self._earned)
        self.infos = {agent: self.core.info(i) for i, agent in enumerate(AGENTS)}
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        self.core.spoil()
        return self.core.observation(AGENTS.index(agent))

    def last(self, observe: bool = True) -> Any:
        observation, *rest, _ = super().last(observe)
        return observation, *rest, self.core.info(AGENTS.index(self.agent_selection))

    def _mask(self, agent: str) -> Any:
        self.core.spoil()
        return self.core.hand_out(self.core.mask(AGENTS.index(agent)))


class Listed(gymnasium.Env[Any, Any]):
    """Two agents in lists, as EPyMARL's gymma takes them."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it
    n_agents = len(AGENTS)

    def __init__(self, **script: Any) -> None:
        self.core = Spoiler(Script(**script))
        self.observation_space = spaces.Tuple([self.core.script.observation_space()] * self.n_agents)
        self.action_space = spaces.Tuple([self.core.script.action.space] * self.n_agents)
        if self.core.has_method:
            self.get_avail_actions = self._masks

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.core.begin(seed)
        return self._seen(), self._infos()

    def step(self, actions: Any) -> Any:
        rewards = [self.core.act(action, i) for i, action in enumerate(actions)]
        self.core.spoil()
        self.core.time += 1
        terminated, truncated = self.core.ends()
        return self._seen(), self.core.hand_out(np.array(rewards)), terminated, truncated, self._infos()

    def state(self) -> Any:
        self.core.spoil()
        return self.core.hand_out(np.array([self.core.episode, self.core.time], np.float64))

    def _seen(self) -> list[Any]:
        return [self.core.observation(i) for i in range(self.n_agents)]

    def _infos(self) -> Any:
        infos = [self.core.info(i) for i in range(self.n_agents)]
        key = self.core.script.mask_key
        if all(key in info for info in infos):
            return {key: [info[key] for info in infos]}  # EPyMARL's form; a list of infos is the other one
        return infos

    def _masks(self) -> Any:
        self.core.spoil()
        return self.core.hand_out([self.core.mask(i) for i in range(self.n_agents)])


TROUBLES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "discrete below": (
        "discrete",
        lambda seen: np.array(-2),
        r"-2 is outside its space Discrete\(4, start=-1\)",
    ),
    "discrete above": ("discrete", lambda seen: 3, r"3 is outside its space Discrete"),
    "discrete between": ("discrete", lambda seen: 0.5, r"0.5 is outside its space Discrete"),
    "card above": ("multi_discrete", lambda seen: np.array([5, 2]), "2 is outside its space MultiDiscrete"),
    "card below": ("multi_discrete", lambda seen: np.array([4, 0]), "4 is outside its space MultiDiscrete"),
    "bit of two": ("multi_binary", lambda seen: np.array([0, 2, 1]), "2 is outside its space MultiBinary"),
    "whole above": ("matrix", lambda seen: np.full((2, 3), 10), "10 is outside its space Box"),
    "whole between": ("matrix", lambda seen: np.full((2, 3), 1.5), "1.5 is outside its space Box"),
    "turned": ("matrix", lambda seen: seen.T, r"expected shape \(2, 3\), got \(3, 2\)"),
    "longer": ("box", lambda seen: np.zeros(3), r"expected shape \(2,\), got \(3,\)"),
    "no numbers": ("box", lambda seen: np.array(["a", "b"]), "expected numbers, got"),
    "missing member": (
        "nested",
        lambda seen: {"arm": seen["arm"]},
        "cannot read an observation: 'eye'",
    ),
    "byte above": ("ids", lambda seen: seen + np.uint8(3), "is outside its space Box"),
    "byte between": ("colours", lambda seen: seen.astype(np.float32) / 2 + 0.25, "is outside its space Box"),
    "byte below": ("colours", lambda seen: seen.astype(np.int16) - 256, "is outside its space Box"),
}
"""Observations outside of their space: the content, what becomes of it, and the complaint."""

CAST_BY_GYMNASIUM = frozenset(
    {
        *("turned", "longer", "no numbers", "missing member"),
        *("discrete between", "whole between", "byte between", "byte below"),
    }
)
"""Those that Gymnasium's vector environments do not pass on."""


def troubled(seen: Any, script: Script) -> Any:
    if script.trouble == "not finite":
        return np.full_like(seen, np.nan)
    if script.trouble not in TROUBLES:
        return seen
    return TROUBLES[script.trouble][1](seen)


BAD_MASKS: dict[str, tuple[Callable[[Script], Any], str]] = {
    "too long": (lambda script: {"action_mask": np.array([1, 0, 1, 0])}, "expected 3 values, .* got 4"),
    "too short": (lambda script: {"action_mask": np.array([1, 0])}, "expected 3 values, .* got 2"),
    "nothing left": (lambda script: {"action_mask": np.zeros(3)}, "no choice is left"),
    "no zeros and ones": (
        lambda script: {"action_mask": np.array([0.5, 1, 0])},
        "expected 0 or 1 .* got 0.5",
    ),
    "not numbers": (lambda script: {"action_mask": ("no", "yes", "no")}, "expected zeros and ones"),
    "another name": (
        lambda script: {"invalid_action_mask": np.array([1, 0, 1])},
        r"info\['invalid_action_mask'\] looks like an action mask and is not read",
    ),
}
"""Masks that cannot be respected in an info, and what is said once."""
