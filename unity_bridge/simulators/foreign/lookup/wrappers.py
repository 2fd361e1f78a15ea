"""Wrappers by the name that users write: Gymnasium's own with arguments, or a function of theirs."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from unity_bridge.simulators.foreign.lookup.imports import import_module, parameters_of
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

_NAMES = tuple(
    name
    for name in gymnasium.wrappers.__all__
    if name[:1].isupper() and not name.startswith(("Jax", "Numpy"))
)
"""Gymnasium's wrappers of single environments whose observations stay NumPy's."""

_IN_THE_TRAINER = {
    "NormalizeObservation": ("network_settings: {normalize: true}", "obs_rms"),
    "NormalizeReward": ("reward_signals: {extrinsic: {normalize_rewards: true}}", "return_rms"),
}
"""Wrappers that learn statistics, the setting of a behavior which keeps these with the policy, and their attribute."""

_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One wrapper with its arguments. It can be sent to other processes."""

    text: str
    """As the user wrote it."""

    name: str
    """Of Gymnasium's wrapper, or ``module:function``."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None

    def around(self, called: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """The environment, wrapped.

        Args:
            called: as the user wrote the environment, for messages.
            env: a single copy.

        Raises:
            SceneError: there is no such function, it does not take these arguments, raised something, or returned
                something else.
        """
        where = f"{called}: --wrap {self.text}"
        function = self._function(where)
        named = self.named or {}
        _require_fitting(where, function, self.positional, named)
        wrapped = ForeignCode(where).call("it", function, env, *self.positional, **named)
        if not isinstance(wrapped, gymnasium.Env):
            raise SceneError(f"{where}: expected a gymnasium.Env to be returned, got {wrapped!r:.60}")
        return wrapped

    def _function(self, where: str) -> Callable[..., Any]:
        module, colon, name = self.name.rpartition(":")
        if not colon:
            found: Callable[..., Any] = getattr(gymnasium.wrappers, name)
            return found
        own: Callable[..., Any] | None = getattr(import_module(where, module), name, None)
        if own is None or not callable(own):
            raise SceneError(f"{where}: {module} has no function or class '{name}'")
        return own


def parse_wrapper(called: str, text: str) -> Wrapper:
    """Reads ``NAME``, ``NAME:ARGUMENTS``, ``module:function`` or ``module:function:ARGUMENTS``.

    Arguments are written as in a call, by position or as ``name=value``: ``4``, ``(84, 84)``,
    ``frame_skip=4,noop_max=0``. A word that is no number is a text, except true, false and null.

    Args:
        called: as the user wrote the environment, for messages.
        text: what stands after ``--wrap``.

    Raises:
        SceneError: there is no such wrapper, it does not belong into a simulator, or its arguments cannot be read.
    """
    where = f"{called}: --wrap {text}"
    name, _, rest = text.partition(":")
    _require_no_statistics(where, name)
    if name not in _NAMES:
        function, _, arguments = rest.partition(":")
        if not (function and all(part.isidentifier() for part in (*name.split("."), function))):
            raise SceneError(f"{where}: {_unknown(name)}")
        name, rest = f"{name}:{function}", arguments
    positional, named = _arguments(where, rest)
    return Wrapper(text, name, positional, named)


def require_no_normalization(called: str, env: Any) -> None:
    """Refuses an environment, or a vector environment, with a normalization wrapper of Gymnasium. Raises SceneError."""
    inner = getattr(env, "unwrapped", env)
    layers = [env, *(inner.envs if isinstance(inner, SyncVectorEnv) else ())]
    while layers:
        layer = layers.pop()
        if isinstance(layer, (gymnasium.Wrapper, VectorWrapper)):
            layers.append(layer.env)
            if type(layer).__module__.startswith("gymnasium.wrappers"):
                _require_no_statistics(f"{called}: {type(layer).__name__}", type(layer).__name__)
    for name, (_, statistics) in _IN_THE_TRAINER.items() if isinstance(inner, AsyncVectorEnv) else ():
        if any(inner.call("has_wrapper_attr", statistics)):
            _require_no_statistics(f"{called}: {name}", name)


def _require_no_statistics(where: str, name: str) -> None:
    if name in _IN_THE_TRAINER:
        raise SceneError(
            f"{where}: its statistics would stay behind in the simulator when the policy leaves; write "
            f"'{_IN_THE_TRAINER[name][0]}' into the behavior's settings instead"
        )


def _unknown(name: str) -> str:
    near = [each for each in _NAMES if each.lower().startswith(name.lower())] if len(name) > 2 else []
    near = near or difflib.get_close_matches(name, _NAMES, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"Gymnasium has no wrapper '{name}'{hint}; expected the name of one, or module:function"


def _arguments(where: str, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        call = ast.parse(f"wrapper({text})", mode="eval").body
        if not isinstance(call, ast.Call) or any(each.arg is None for each in call.keywords):
            raise ValueError
        named = {str(each.arg): _value(each.value) for each in call.keywords}
        return tuple(_value(each) for each in call.args), named
    except (SyntaxError, ValueError):
        raise SceneError(
            f"{where}: expected arguments such as 4 or frame_skip=4,screen_size=84, got '{text}'"
        ) from None


def _value(node: ast.expr) -> Any:
    """Evaluates a literal. Lists become tuples, because wrappers expect shapes. Raises ValueError for other code."""
    if isinstance(node, ast.Name):
        return _CONSTANTS.get(node.id.lower(), node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(_value(each) for each in node.elts)
    return ast.literal_eval(node)


def _require_fitting(
    where: str, function: Callable[..., Any], positional: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Refuses arguments that a wrapper does not take. Raises SceneError."""
    parameters = parameters_of(function)
    if not parameters:
        return  # it does not tell: the call itself will
    known = list(parameters)[1:]
    takes = f"it takes {', '.join(known) or 'nothing'}"
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for name in named:
        if name not in known and not takes_any:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise SceneError(f"{where}: no argument '{name}'{hint}; {takes}")
    try:
        inspect.signature(function).bind(None, *positional, **named)
    except TypeError as error:
        raise SceneError(f"{where}: {error}; {takes}") from None
