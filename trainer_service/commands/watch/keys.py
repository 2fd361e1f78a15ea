"""The keys that stand for actions, and the action that pressed keys make."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch

_PAIRS = (("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp"), ("KeyA", "KeyD"), ("KeyS", "KeyW"))
"""The keys for −1 and 1 of each continuous action, and for two choices of a branch, in the browser's names."""
_SINGLES = ("Space", "ShiftLeft", "KeyE", "KeyQ", "KeyF", "KeyR")
_FOURS = (("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"), ("KeyW", "KeyS", "KeyA", "KeyD"))
_DIGITS = tuple(f"Digit{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 0))


@dataclass(frozen=True, slots=True)
class Binding:
    """A key, and its effect on one action."""

    key: str
    """As ``KeyboardEvent.code`` in the browser names it."""

    kind: str
    """``continuous`` or ``discrete``."""

    index: int
    """Of the continuous action, or of the branch."""

    value: float
    """−1 or 1, or the choice."""

    @property
    def text(self) -> str:
        """The line that the page shows for the key."""
        name = self.key.removeprefix("Key").removeprefix("Digit")
        if self.kind == "continuous":
            return f"{name}: action {self.index} = {self.value:+g}"
        return f"{name}: branch {self.index}, choice {int(self.value)}"


class KeyMap:
    """Keys for every action of a behavior: pairs and axes first, then digits.

    Choice 0 of a branch needs no key: it is taken while none of the branch's keys is pressed. A branch of three has a
    key for either direction, one of five the four arrows. Where keys run out, an action stays at 0.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self.bindings: Sequence[Binding] = _bindings(spec)
        """Every key once."""

    def action(
        self, pressed: Collection[str], axes: Sequence[float], allowed: NDArray[np.bool_]
    ) -> ActionBatch:
        """The action of one agent.

        Args:
            pressed: keys, by the browser's names.
            axes: of a gamepad, in [−1, 1]; one that is out of its centre wins over keys.
            allowed: the agent's mask, branches side by side, [sum of branches]. A choice that is not allowed becomes
                the first that is.
        """
        continuous = np.zeros((1, self._spec.continuous_size), np.float32)
        discrete = np.zeros((1, self._spec.discrete_size), np.int32)
        for binding in self.bindings:
            if binding.key in pressed:
                if binding.kind == "continuous":
                    continuous[0, binding.index] += binding.value
                else:
                    discrete[0, binding.index] = int(binding.value)
        for index, value in enumerate(axes[: self._spec.continuous_size]):
            if abs(value) > _DEAD_ZONE:
                continuous[0, index] = value
        begin = 0
        for branch, choices in enumerate(self._spec.discrete_branches):
            mask = allowed[begin : begin + choices]
            if len(mask) and not mask[discrete[0, branch]]:
                discrete[0, branch] = int(mask.argmax())
            begin += choices
        return ActionBatch(np.clip(continuous, -1.0, 1.0), discrete)


_DEAD_ZONE = 0.15
"""How far a stick may be from its centre at rest."""


def _bindings(spec: ActionSpec) -> list[Binding]:
    taken: dict[str, Binding] = {}
    for index in range(spec.continuous_size):
        free = next((pair for pair in _PAIRS if not set(pair) & taken.keys()), None)
        for key, value in zip(free or (), (-1.0, 1.0), strict=False):
            taken[key] = Binding(key, "continuous", index, value)
    for index, choices in enumerate(spec.discrete_branches):
        for key, choice in zip(_free_keys(choices - 1, taken), range(1, choices), strict=False):
            taken[key] = Binding(key, "discrete", index, float(choice))
    return list(taken.values())


def _free_keys(count: int, taken: Mapping[str, Binding]) -> Sequence[str]:
    """Returns keys for the choices of an action, which no other action has."""
    groups: Sequence[Sequence[str]] = {1: [(key,) for key in _SINGLES], 2: _PAIRS, 4: _FOURS}.get(count, [])
    for group in groups:
        if not set(group) & taken.keys():
            return group
    return [key for key in (*_DIGITS, *_SINGLES) if key not in taken][:count]
