"""Copies of one environment side by side, stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gymnasium import spaces

from unity_bridge.simulators.foreign.environment import (
    Agent,
    AgentStep,
    Description,
    Environment,
    copied,
)
from unity_bridge.simulators.foreign.state import State
from unity_bridge.simulators.third_party import ForeignCode

_SEED_STRIDE = 1000


class Row(NamedTuple):
    """A step of one agent of a copy."""

    copy: int
    step: AgentStep
    state: Any = None
    """The copy's state, as State.observe() returned it; None where it is not shown."""


Rows = list[Row]


class Copies(Protocol):
    """Copies of one environment, wherever they run."""

    description: Description
    """The agents of a copy."""

    environment: Environment | None
    """Copy 0 where copies have states; None where they are stepped together only."""

    def __len__(self) -> int: ...

    def show(self, state: State) -> None:
        """Adds the state to every row from now on; only where ``environment`` is not None."""

    def reset(self, seed: int | None) -> Rows:
        """Resets every copy; seed: see ``copy_seed``. Returns the rows of all agents that are to act, in order."""

    def step(self, actions: Sequence[Mapping[Agent, Any]]) -> tuple[Rows, Rows]:
        """Steps every copy with the actions of its waiting agents. A copy without remaining agents is reset.

        Returns the rows of agents that ended an episode, and the rows of agents to act now, at least one.
        """

    def render(self) -> Any:
        """The picture of copy 0: the end of its episode if it ended in the last step."""

    def close(self) -> None:
        """Closes the copies."""


class SerialCopies:
    """Environments in this process. The first rows of an episode come with the last ones of the episode before."""

    def __init__(self, code: ForeignCode, envs: Sequence[Environment], *, rendered: bool = False) -> None:
        """Raises SceneError where copies differ in their spaces.

        rendered: whether render() will be called, which draws the first one.
        """
        for copy, env in enumerate(envs[1:], start=1):
            _require_equal(code, copy, env.description.spaces, envs[0].description.spaces)
        self.description = envs[0].description
        self.environment: Environment | None = envs[0]
        self._code = code
        self._envs = envs
        self._rendered = rendered
        self._state: State | None = None
        self._last_picture: Any = None
        """Of the episode of copy 0 that ended in the last step."""

    def __len__(self) -> int:
        return len(self._envs)

    def show(self, state: State) -> None:
        self._state = state

    def reset(self, seed: int | None) -> Rows:
        self._last_picture = None
        rows: Rows = []
        for copy, env in enumerate(self._envs):
            rows += self._rows(copy, env.reset(copy_seed(seed, copy)))
        return rows

    def step(self, actions: Sequence[Mapping[Agent, Any]]) -> tuple[Rows, Rows]:
        ended: Rows = []
        waiting: Rows = []
        self._last_picture = None
        for copy, (env, chosen) in enumerate(zip(self._envs, actions, strict=True)):
            leaving, staying = env.step(chosen)
            if leaving:
                ended += self._rows(copy, leaving)
            if not staying:
                if self._rendered and copy == 0:
                    self._last_picture = copied(self._code.call("render()", env.render))
                staying = env.reset()
            waiting += self._rows(copy, staying)
        return ended, waiting

    def render(self) -> Any:
        if self._last_picture is None:
            return self._code.call("render()", self._envs[0].render)
        return self._last_picture

    def close(self) -> None:
        for env in self._envs:
            self._code.close(env.close)

    def _rows(self, copy: int, steps: Sequence[AgentStep]) -> Rows:
        if not steps:
            raise self._code.error("reset() left no agent that could act")
        state = None if self._state is None else self._state.observe(self._envs[copy])
        return [Row(copy, step, state) for step in steps]


def _require_equal(
    code: ForeignCode, copy: int, given: Mapping[Agent, Any], first: Mapping[Agent, Any]
) -> None:
    """Raises SceneError where the spaces of a copy are not those of copy 0."""
    if given.keys() != first.keys():
        raise code.error(f"copy {copy} has the agents {', '.join(map(str, given))}; expected those of copy 0: "
                         f"{', '.join(map(str, first))}")  # fmt: skip
    for agent, own in given.items():
        for kind, space, expected in zip(("observation", "action"), own, first[agent], strict=True):
            if not _is_alike(space, expected):
                raise code.error(
                    f"copy {copy}: the {kind} space of agent '{agent}' is {space!s:.80}; expected that of copy 0, "
                    f"{expected!s:.80}"
                )


def _is_alike(space: Any, other: Any) -> bool:
    """Whether two spaces are equal. Those of classes that define no equality are, if they are of one class."""
    if isinstance(space, spaces.Dict) and isinstance(other, spaces.Dict):
        return space.keys() == other.keys() and all(_is_alike(space[key], other[key]) for key in space)
    if isinstance(space, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(space) == len(other) and all(map(_is_alike, space.spaces, other.spaces))
    if not any("__eq__" in vars(each) for each in type(space).__mro__[:-1]):
        return type(space) is type(other)
    return bool(space == other)


def copy_seed(seed: int | None, copy: int) -> int | None:
    """seed + 1000 i for copy i of an environment; None continues with the random numbers at hand.

    The simulators of a run have seeds that follow one another: were those of copies to follow one another too, copies
    of one simulator would live through the same as copies of the next.
    """
    return None if seed is None else (seed + _SEED_STRIDE * copy) % 2**31
