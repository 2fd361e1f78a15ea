"""Action masks: their places in environments, their layouts, and the warnings about masks that do not fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy.typing import NDArray

from unity_bridge.simulators.foreign.actions import Actuator, actuator
from unity_bridge.simulators.foreign.environment import AgentStep
from unity_bridge.simulators.foreign.lookup.imports import parameters_of
from unity_bridge.simulators.third_party import ForeignCode

MASK = "action_mask"
"""The member of an observation, and the key of an info, as Gymnasium, PettingZoo and RLlib call it."""

KEYS = (MASK, "action_masks", "avail_actions", "available_actions", "valid_action_mask")
"""Keys of infos, and members of observations, that hold a mask. EPyMARL has ``avail_actions``."""

METHODS = ("action_masks", "get_avail_actions", "action_mask", "get_action_mask", "valid_action_mask")
"""Methods of environments that return masks: Stable-Baselines3-contrib's first, then EPyMARL's."""

_LIKE_A_MASK = re.compile(
    r"mask|.*(action|move).*mask.*|.*mask.*(action|move).*|(avail\w*|legal|valid|allowed|possible)_?(action|move)s?",
    re.IGNORECASE,
)


def mask_of_info(info: Any, code: ForeignCode) -> Any:
    """The mask in an info; None without one."""
    key = mask_key(info, code)
    return None if key is None else info[key]


def mask_key(info: Any, code: ForeignCode) -> str | None:
    """Returns the key of the mask in an info, or None. A key that looks like another kind of mask is reported once."""
    if not info or not isinstance(info, (dict, Mapping)):  # the usual kind first: it is asked much faster
        return None
    known, unread = _masks_among(tuple(info))
    for key in known:
        if info[key] is not None:
            return key
    for key in unread:
        code.warn(
            f"unread {key}",
            f"info['{key}'] looks like an action mask and is not read; expected the key {MASK}",
        )
    return None


def has_mask(info: Mapping[str, Any]) -> bool:
    """Whether an info holds a mask."""
    return any(info.get(key) is not None for key in KEYS)


@lru_cache(maxsize=1024)
def _masks_among(keys: tuple[Any, ...]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the keys of an info that name masks, and the keys that look like one. Cached, for each step asks."""
    named = (key for key in keys if isinstance(key, str) and key not in KEYS and not key.startswith("_"))
    unread = [key for key in named if _looks_like_a_mask(key)]
    return [key for key in KEYS if key in keys], unread


def _looks_like_a_mask(key: str) -> bool:
    """Whether a key could be that of a mask."""
    return _LIKE_A_MASK.fullmatch(key) is not None


def mask_method(env: Any, arguments: int = 0) -> Callable[..., Any] | None:
    """The method of an environment, or of one that it wraps, that returns what is allowed now; None without one.

    That of a vector environment returns the masks of all copies.

    arguments: how many the method must take: 1 where it is asked for an agent.
    """
    inner = getattr(env, "unwrapped", env)
    if isinstance(inner, SyncVectorEnv):
        methods = [mask_method(each) for each in inner.envs]
        return None if None in methods else lambda: [method() for method in methods if method is not None]
    if isinstance(inner, AsyncVectorEnv):  # whose methods' arguments cannot be looked at from here
        known = (name for name in METHODS if all(inner.call("has_wrapper_attr", name)))
        return next((partial(inner.call, name) for name in known), None)
    for holder in (env, inner):
        for name in METHODS:
            found = _attribute(holder, name)
            if callable(found) and required_arguments(found) == arguments:
                method: Callable[..., Any] = found
                return method
    return None


def _attribute(env: Any, name: str) -> Any:
    try:
        return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)
    except AttributeError:
        return None


def required_arguments(function: Callable[..., Any]) -> int:
    """The number of required arguments of a function; none where it does not tell, as functions written in C."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = parameters_of(function).values()
    return sum(each.default is each.empty and each.kind not in variable for each in parameters)


def masks_by_copy(masks: Any, offered: Any, copies: int) -> list[Any]:
    """Masks of all copies, one by one: arrays with a first dimension for copies, nested as actions may be.

    offered: which copies have one; None for all.
    """
    if isinstance(masks, Mapping):
        members = {
            key: masks_by_copy(part, masks.get(f"_{key}"), copies)
            for key, part in masks.items()
            if not str(key).startswith("_")
        }
        each: list[Any] = [{key: member[i] for key, member in members.items()} for i in range(copies)]
    else:
        each = list(masks) if hasattr(masks, "__len__") and len(masks) == copies else [masks] * copies
    return (
        each
        if offered is None
        else [mask if given else None for mask, given in zip(each, offered, strict=True)]
    )


def mask_member(space: Any, actuator: Actuator, code: ForeignCode) -> str | None:
    """The member of an observation space that is the action mask; None without one.

    ``action_mask`` is one wherever there is something to choose; a member of another usual name is one if it has
    a zero or one for each choice.
    """
    if not isinstance(space, spaces.Dict):
        return None
    size = actuator.spec.mask_size
    for key in KEYS:
        if key in space.spaces and (key == MASK or _is_binary(space.spaces[key], size)):
            if size:
                return key
            code.warn(
                f"no choices {key}",
                f"observation['{key}']: continuous actions have no mask; it is observed instead",
            )
    for key in space.spaces:
        if isinstance(key, str) and _looks_like_a_mask(key) and _is_binary(space.spaces[key], size):
            code.warn(
                f"unread {key}",
                f"observation['{key}'] looks like an action mask and is observed instead; expected the key {MASK}",
            )
    return None


def _is_binary(space: Any, size: int) -> bool:
    """Whether the members of a space are ``size`` zeros and ones."""
    is_binary = isinstance(space, spaces.MultiBinary) or (
        isinstance(space, spaces.Box) and bool((space.low == 0).all() and (space.high == 1).all())
    )
    return is_binary and int(np.prod(space.shape)) == size > 0


class MaskReader:
    """Reads the action masks of a behavior's agents, from their observations or from their infos."""

    def __init__(self, behavior: str, actuator: Actuator, member: str | None, code: ForeignCode) -> None:
        """member: the member of observations that is the mask; None where masks come beside observations."""
        self._behavior = behavior
        self._actuator = actuator
        self._member = member
        self._code = code

    def read(self, steps: Sequence[AgentStep], *, deciding: bool, refuses: bool = False) -> NDArray[np.bool_]:
        """True where a choice is allowed, all branches side by side. Shape [N, sum of branches].

        A mask that does not fit, or that leaves an agent without a choice, allows everything, with one warning.

        Args:
            steps: of N agents.
            deciding: whether the agents are to act now. Masks of other agents are used if they fit, without a warning.
            refuses: raise SceneError instead of the warning.
        """
        allowed = np.ones((len(steps), self._actuator.spec.mask_size), np.bool_)
        if self._member is None and all(step.mask is None for step in steps):
            return allowed
        for row, step in zip(allowed, steps, strict=True):
            mask = step.mask if self._member is None else self._of_observation(step)
            if mask is None:
                continue
            try:
                row[:] = laid_out(mask, self._actuator)
            except ValueError as error:
                text = f"behavior '{self._behavior}': action mask: {error}"
                if refuses:
                    raise self._code.error(text) from None
                if deciding:
                    topic = f"mask {self._behavior} {str(error)[:20]}"
                    self._code.warn(topic, f"{text}; every choice is allowed")
        return allowed

    def _of_observation(self, step: AgentStep) -> Any:
        observation = step.observation
        return observation.get(self._member, step.mask) if isinstance(observation, Mapping) else step.mask


def laid_out(mask: Any, actuator: Actuator) -> NDArray[np.bool_]:
    """A mask (1 = allowed) over all branches. Shape [sum of branches].

    One flat array; an array for each branch, which may be padded with zeros to the longest; for a Dict or Tuple of
    actions one mask for each member. A MultiBinary takes Gymnasium's own form, too: 0 or 1 where only that is allowed,
    2 for either.

    Raises:
        ValueError: it does not fit, holds other numbers, or leaves a branch without a choice. Names the expected mask.
    """
    branches = actuator.spec.discrete_branches
    if not branches:
        raise ValueError("there is nothing to mask, because all actions are continuous")
    values = _flat(_without_padding(mask, branches), actuator.space)
    size = sum(branches)
    if len(values) != size:
        raise ValueError(f"expected {size} values, one for each choice of {branches}, got {len(values)}")
    if not ((values == 0) | (values == 1)).all():
        odd = values[(values != 0) & (values != 1)][0]
        raise ValueError(f"expected 0 or 1 for each choice, got {odd:g}")
    allowed: NDArray[np.bool_] = values == 1
    if found := actuator.spec.first_without_choice(allowed[np.newaxis]):
        raise ValueError(found[1])
    return allowed


def _without_padding(mask: Any, branches: Sequence[int]) -> Any:
    """A mask whose rows, one for each branch, end where their branches do; as it is if more is left than zeros."""
    if len(branches) == 1 or not isinstance(mask, (np.ndarray, tuple)) or len(mask) != len(branches):
        return mask
    rows = [np.asarray(row) for row in mask]
    if any(row.ndim != 1 or row[size:].any() for row, size in zip(rows, branches, strict=True)):
        return mask
    return tuple(row[:size] for row, size in zip(rows, branches, strict=True))


def _flat(mask: Any, space: Any) -> NDArray[np.float64]:
    """The values of a mask for a space, one after the other. Raises ValueError where they cannot be read."""
    if isinstance(space, spaces.Dict) and isinstance(mask, Mapping):
        if unknown := sorted(set(mask) - set(space.spaces)):
            raise ValueError(f"expected the members {', '.join(sorted(space.spaces))}, got {unknown[0]!r}")
        return _side_by_side([(mask.get(key), space.spaces[key]) for key in sorted(space.spaces)])
    has_parts = isinstance(mask, tuple) and not any(
        isinstance(part, (int, float, np.generic)) for part in mask
    )
    if isinstance(space, spaces.Tuple) and has_parts and len(mask) == len(space.spaces):
        return _side_by_side(list(zip(mask, space.spaces, strict=True)))
    values = _numbers(mask)
    if isinstance(space, spaces.MultiBinary) and len(values) == np.prod(space.shape):
        if not np.isin(values, (0, 1, 2)).all():
            raise ValueError("expected 0, 1 or 2 for each bit, or a zero or one for each of its values")
        return np.stack([values != 1, values != 0], axis=1).astype(np.float64).ravel()
    return values


def _side_by_side(members: Sequence[tuple[Any, Any]]) -> NDArray[np.float64]:
    """The values of the masks for several spaces; a mask that is missing allows everything."""
    sizes = [actuator(space).spec.mask_size for _, space in members]
    flat = [
        np.ones(size) if mask is None or not size else _flat(mask, space)
        for size, (mask, space) in zip(sizes, members, strict=True)
    ]
    return np.concatenate([np.zeros(0), *flat])


def _numbers(mask: Any) -> NDArray[np.float64]:
    if isinstance(mask, (tuple, list)):
        return np.concatenate([np.zeros(0), *map(_numbers, mask)])
    try:
        return np.ravel(np.asarray(mask, np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"expected zeros and ones, got {mask!r:.60}") from None
