"""Callbacks: code of users that a run calls.

A callback is a class with any of the methods of ``Callback``. All of them are called in the run's own thread, one
after the other, in the order in which callbacks were given. See docs/callbacks.md.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import Evaluation
from trainer_service.learning.rollout.group_returns import counted_returns
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.plugins import CALLBACK_PLUGINS
from unity_bridge.names import did_you_mean
from unity_bridge.process_guard import HostedExit, call_guarded
from unity_bridge.side_channels import Aggregation, StatMessage
from unity_bridge.steps import ActionBatch, StepBatch
from unity_bridge.untrusted_text import printable

_logger = logging.getLogger(__name__)


class CallbackError(UserError):
    """Raised if a callback failed, or returned an invalid value. The run is saved and ends."""


class BehaviorView(Protocol):
    """A behavior as callbacks see it, through ``RunView``."""

    @property
    def step(self) -> int: ...

    def add_stat(self, stat: StatMessage, *, is_own: bool = False) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class RunView:
    """A run as callbacks see it."""

    options: RunOptions
    """The options that the run was started with."""

    folder: Path
    """The folder of its results. Files that callbacks put there are left alone."""

    behaviors: Mapping[str, BehaviorView]
    """Behaviors that have shown up so far."""

    ask_to_stop: Callable[[], None]

    @property
    def steps(self) -> dict[str, int]:
        """Agent steps of each behavior."""
        return {name: behavior.step for name, behavior in self.behaviors.items()}

    def stop(self, reason: str) -> None:
        """Asks the run to save and to end, as Ctrl-C does."""
        _logger.info("A callback stops the run: %s", reason)
        self.ask_to_stop()

    def add_statistic(self, behavior: str, name: str, value: float) -> None:
        """Adds a value to the behavior's next summary: the mean of a name's values goes to TensorBoard and to
        metrics.jsonl. A name such as ``Mine/Entropy of goals`` becomes a tag."""
        self.behaviors[behavior].add_stat(StatMessage(name, float(value), Aggregation.AVERAGE), is_own=True)


@dataclass(frozen=True, slots=True, eq=False)
class EndedEpisodes:
    """Episodes that ended in one tick of one simulator, or while a rollout worker collected, as they are reported."""

    returns: NDArray[np.float64]
    """Returns of agents: each the sum of its own raw rewards. Shape [E]."""

    lengths: NDArray[np.int64]
    """Decisions in each of these episodes. Shape [E]."""

    agent_indices: NDArray[np.int64]
    """The index of each of these agents in its group, from 0 on; −1 without a group, and with trainer types that know
    none. Shape [E]."""

    group_returns: NDArray[np.float64]
    """Returns of groups: the group's raw reward and its members' own. Shape [G]; empty without groups."""

    in_group: NDArray[np.bool_]
    """Whether each of these agents is of a group. Shape [E]."""

    @property
    def counted_returns(self) -> NDArray[np.float64]:
        """The returns that lessons and lists of checkpoints count: those of groups, and of agents without a group."""
        return counted_returns(self.returns, self.in_group, self.group_returns)

    @staticmethod
    def concatenate(parts: Sequence[EndedEpisodes]) -> EndedEpisodes:
        """The episodes of several records, in order. Needs at least one record."""
        return EndedEpisodes(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(EndedEpisodes)
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class SimulatorStep:
    """One step of a simulator: what agents of one behavior and team saw and earned, and what they do next."""

    simulator: int
    """Its number."""

    team: int

    batch: StepBatch
    """Observations, rewards since the agents' previous actions, ends and masks. N rows: ends of episodes first, then
    agents that act."""

    actions: ActionBatch
    """Actions that were chosen for the agents that act. M rows, those of ``batch`` after its ``num_terminal``."""


class Callback:
    """A base for callbacks, which does nothing. Overwrite the methods that you need; the others cost nothing.

    ``behavior`` is always a behavior's name, without its team.
    """

    def on_run_start(self, run: RunView) -> None:
        """Called when everything is ready and no simulator has sent anything yet."""

    def on_run_end(self, run: RunView) -> None:
        """Called when the run is over, for whatever reason, and saved."""

    def on_step(self, run: RunView, behavior: str, step: SimulatorStep) -> None:
        """Called at each step of each simulator, when actions are chosen and before they are sent. Must not change
        them. Steps of rollout workers are not seen here, for they happen in other processes."""

    def on_collection(self, run: RunView, behavior: str, trajectories: Trajectories) -> None:
        """Called with complete trajectory segments that go to the learner next: with the simulator's rewards,
        whatever ``shape_rewards`` makes of them. Must not change them."""

    def shape_rewards(self, run: RunView, behavior: str, trajectories: Trajectories) -> NDArray[Any]:
        """Rewards to train on in place of the agents' own.

        What is reported stays as it is: returns, lessons, evaluations.

        Args:
            trajectories: S steps, end to end; their ``rewards`` are what earlier callbacks made of them.

        Returns:
            Finite numbers, one for each step, in the same order. Shape [S].
        """
        return trajectories.rewards

    def on_update_start(self, run: RunView, behavior: str) -> None:
        """Called when enough was collected and the learner is about to learn."""

    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        """Called after an update. ``metrics`` are its losses and statistics, by TensorBoard tag."""

    def on_episode_end(self, run: RunView, behavior: str, episodes: EndedEpisodes) -> None:
        """Called when episodes ended."""

    def on_evaluation_step(self, run: RunView, behavior: str, step: SimulatorStep) -> None:
        """Called at each step of the simulator of an evaluation, as ``on_step`` is in training."""

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """Called after an evaluation, once for each behavior; best.safetensors is in place if this was the best."""

    def on_checkpoint(self, run: RunView, behavior: str, path: Path) -> None:
        """Called when a numbered checkpoint of a behavior was saved to ``path``, before another step is made."""


_PREFIXES = ("on_", "shape_")

METHODS = tuple(name for name in vars(Callback) if name.startswith(_PREFIXES))
"""The names of methods that can be overwritten."""


class CallbackList:
    """The callbacks of a run, called in their order. After the first that fails none is called any more."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        """Raises UserError for an object that is no callback, and for a misspelled callback method."""
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise UserError(
                    f"callbacks: expected objects of classes derived from trainer_service.Callback, got {callback!r}"
                )
            _require_known_methods(callback)
        self._listeners = {method: _listeners(callbacks, method) for method in METHODS}
        self._run: RunView | None = None

    def listener(self, method: str) -> Callable[..., None] | None:
        """A function that calls every callback with this method; None if there is none, so that nothing is prepared.

        The run is not among its arguments: it is added.
        """
        return partial(self._call_all, method) if self._listeners[method] else None

    def on_run_start(self, run: RunView) -> None:
        self._run = run
        self._call_all("on_run_start")

    def on_run_end(self) -> None:
        """Calls every callback, also after one has failed. Raises the first CallbackError."""
        errors: list[CallbackError] = []
        for listener in self._listeners["on_run_end"]:
            try:
                self._call(listener)
            except CallbackError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def on_collection(self, behavior: str, trajectories: Trajectories) -> Trajectories:
        """The trajectories that the learner gets: these with shaped rewards."""
        self._call_all("on_collection", behavior, trajectories)
        for shape in self._listeners["shape_rewards"]:
            shaped = self._call(shape, behavior, trajectories)
            trajectories = replace(trajectories, rewards=self._checked(shaped, len(trajectories), shape))
        return trajectories

    def on_update_start(self, behavior: str) -> None:
        self._call_all("on_update_start", behavior)

    def on_update_end(self, behavior: str, metrics: Mapping[str, float]) -> None:
        self._call_all("on_update_end", behavior, metrics)

    def on_episode_end(self, behavior: str, episodes: EndedEpisodes) -> None:
        self._call_all("on_episode_end", behavior, episodes)

    def on_evaluations(self, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            self._call_all("on_evaluation", evaluation)

    def on_checkpoint(self, behavior: str, path: Path) -> None:
        self._call_all("on_checkpoint", behavior, path)

    def _call_all(self, method: str, *arguments: Any) -> None:
        for listener in self._listeners[method]:
            self._call(listener, *arguments)

    def _call(self, listener: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return listener(self._run, *arguments)
        except Exception as error:
            self._silence(listener)
            _logger.error("%s failed:", _name_of(listener), exc_info=error)
            text = " ".join(str(error).split())
            raise CallbackError(
                f"callback {_name_of(listener)} raised {type(error).__name__}: {text}. The log has its traceback; "
                "what was learned until then is saved"
            ) from error

    def _silence(self, failed: Callable[..., Any]) -> None:
        """Calls nothing any more, except the ends of the run of callbacks that have not failed."""
        owner = getattr(failed, "__self__", None)
        ends = self._listeners["on_run_end"]
        others = tuple(each for each in ends if getattr(each, "__self__", None) is not owner)
        self._listeners = {**dict.fromkeys(METHODS, ()), "on_run_end": others}

    def _checked(self, shaped: Any, steps: int, listener: Callable[..., Any]) -> NDArray[np.float32]:
        try:
            rewards = np.asarray(shaped, np.float32)
            if rewards.shape == (steps,) and np.isfinite(rewards).all():
                return rewards
            got = f"shape {rewards.shape}" if rewards.shape != (steps,) else "NaN or infinities"
        except (TypeError, ValueError):
            got = repr(shaped)
        self._silence(listener)
        raise CallbackError(
            f"callback {_name_of(listener)}: expected {steps} finite rewards, one for each step, got {got}"
        )


def load_callback(name: str) -> Callback:
    """Makes the callback that ``MODULE:CLASS`` names, or a plugin's by its name.

    The current folder is searched before installed modules.

    Raises:
        UserError: there is none, it is none, or it cannot be made.
    """
    plugin = CALLBACK_PLUGINS.offered().get(name)
    module_name, _, class_name = (plugin.entry_point.value if plugin else name).partition(":")
    if not plugin and not (module_name and class_name):
        raise UserError(_no_callback(name))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())

    def made() -> Callback:
        kind = plugin.load() if plugin else getattr(importlib.import_module(module_name), class_name)
        if not isinstance(kind, type) or not issubclass(kind, Callback):
            raise TypeError(f"expected a class derived from trainer_service.Callback, got {kind!r}")
        return kind()

    try:
        return call_guarded(made)
    except Exception as error:  # it is the user's code: anything may happen in it
        if _ran_in(module_name, error):
            trace = printable("".join(traceback.format_exception(error)))
            _logger.error("%s cannot be made:\n%s", name, trace)
        kind = "" if isinstance(error, HostedExit) else f"{type(error).__name__}: "
        text = printable(" ".join(str(error).split()))
        raise UserError(f"--hooks {name}: {kind}{text}") from error


def plugins_among(callbacks: Sequence[Callback]) -> dict[str, str]:
    """The callbacks that are of plugins, as ``callbacks.NAME``, each with its distribution and version."""
    if not callbacks:
        return {}
    used = {f"{type(each).__module__}:{type(each).__qualname__}" for each in callbacks}
    offered = CALLBACK_PLUGINS.offered().items()
    return {
        f"callbacks.{name}": plugin.source for name, plugin in offered if plugin.entry_point.value in used
    }


def _no_callback(name: str) -> str:
    expected = "--hooks: expected MODULE:CLASS, such as my_callbacks:EarlyStop"
    offered = list(CALLBACK_PLUGINS.offered())
    if not offered:
        return f"{expected}, got '{name}'"
    hint = did_you_mean(name, offered)
    return f"{expected}, or the name of a plugin, one of {', '.join(offered)}, got '{name}'{hint}"


def _ran_in(module: str, error: BaseException) -> bool:
    """Whether an error came from a module's code: then its traceback says more than its last line."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == module for frame, _ in frames)


def _require_known_methods(callback: Callback) -> None:
    """Raises UserError for a method that looks misspelt: it would never be called."""
    for name in dir(type(callback)):
        if not name.startswith(_PREFIXES) or name in METHODS:
            continue
        hint = did_you_mean(name, METHODS)
        raise UserError(
            f"callback {_class_of(callback)}: no run calls '{name}'{hint}; expected one of {', '.join(METHODS)}. Names "
            "that begin with 'on_' or 'shape_' are for these alone"
        )


def _listeners(callbacks: Sequence[Callback], method: str) -> tuple[Callable[..., Any], ...]:
    """The callbacks' own methods of that name."""
    inherited = getattr(Callback, method)
    return tuple(
        getattr(callback, method)
        for callback in callbacks
        if getattr(type(callback), method) is not inherited
    )


def _name_of(listener: Callable[..., Any]) -> str:
    return f"{_class_of(getattr(listener, '__self__', listener))}.{getattr(listener, '__name__', '')}"


def _class_of(callback: object) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"
