"""The command line of the bundled simulator."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_args

from unity_bridge.errors import BridgeError, RemoteError
from unity_bridge.names import did_you_mean
from unity_bridge.remote.dialing import TrainerConnection
from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode, split_address
from unity_bridge.side_channels import FloatParameter, expert_record
from unity_bridge.simulators import LAUNCHED
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.client import run
from unity_bridge.simulators.conversation import Watch
from unity_bridge.simulators.foreign.options import FOREIGN_OPTIONS, add_arguments, named_schemes
from unity_bridge.simulators.group_scenes.registry import GROUP_SCENES, OPTIONS
from unity_bridge.simulators.notices import relayed_warnings
from unity_bridge.simulators.registry import (
    SCENES,
    BundledScene,
    no_expert,
    open_scene,
)
from unity_bridge.simulators.rendering.films import recording_problem
from unity_bridge.simulators.rendering.recording import LONGEST_S, BestEpisodeRecorder, FilmRecorder
from unity_bridge.simulators.scene import Demonstrator, Scene, SceneError, Steps, flag_of
from unity_bridge.simulators.scenes.grid_camera import PictureFormat
from unity_bridge.simulators.schemes import FILE, SCHEMES
from unity_bridge.simulators.third_party import users_traceback
from unity_bridge.transport.ports import port_number
from unity_bridge.untrusted_text import harmless

DEFAULT_PORT = 5004
CONNECT_TIMEOUT_S = 10.0
ENVIRONMENTS = ", ".join(
    f"{each.form} ({each.meaning})" if each.meaning else each.form
    for each in (*SCHEMES.values(), FILE)
    if each.form
)
"""The forms of ENV."""

_OF_LEARN = {"--port": "--mlagents-port", "--base-port": "--mlagents-port"}
"""Flags of ``learn`` that have another name here."""

RECONNECT_S = 60.0


def main(argv: Sequence[str] | None = None, opener: Callable[..., Scene] = open_scene) -> int:
    """Runs one simulator until the trainer or the user ends it.

    Args:
        argv: the arguments without the program's name; those of this process if None.
        opener: opens the scene; it is called as ``open_scene``.

    Returns:
        The exit code: 0 after a conversation, 1 if there was none or the trainer broke it off with an
        error, 2 if the arguments or the environment are wrong.
    """
    try:
        arguments = parse(argv)
        trainer = _trainer(arguments)
    except SceneError as error:
        return _fail(error, 2)
    try:
        academy = academy_for(arguments)
        with relayed_warnings(academy), opened(arguments, academy, opener) as (scene, watch):
            return _run(scene, academy, watch, arguments, trainer)
    except SceneError as error:
        # The traceback comes first, the error last: people read the end of a log.
        print(users_traceback(error), end="", file=sys.stderr)
        return _fail(error, 2)
    except BridgeError as error:
        return _fail(f"{arguments.env}: {error}", 1)


def academy_for(arguments: argparse.Namespace) -> Academy:
    """Makes the scene's parameters, some of them fixed by arguments, and its statistics."""
    return Academy({parameter.name: parameter.value for parameter in arguments.parameter})


def open_for(
    arguments: argparse.Namespace,
    academy: Academy,
    opener: Callable[..., Scene] = open_scene,
    *,
    rendered: bool = False,
) -> Scene:
    """The scene that the arguments ask for. rendered: whether render() will be called in any case.

    Raises:
        SceneError: as ``open_scene``.
    """
    return opener(
        arguments.env,
        agents=arguments.agents,
        academy=academy,
        pictures=arguments.pictures,
        env_kwargs=arguments.env_kwargs,
        options=_group_options(arguments),
        rendered=rendered or arguments.record is not None,
    )


def _group_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of scenes with teams that were given, by name."""
    given = {name: getattr(arguments, name) for name in (*OPTIONS, *FOREIGN_OPTIONS)}
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def opened(
    arguments: argparse.Namespace, academy: Academy, opener: Callable[..., Scene] = open_scene
) -> Iterator[tuple[Scene, Watch]]:
    """The scene that the arguments ask for, open as long as the context lasts, and a function that watches its steps.

    The film that the arguments ask for is saved at the end.

    Raises:
        SceneError: it cannot be opened, has no expert, or the film cannot be saved.
    """
    scene = open_for(arguments, academy, opener)
    recorder = None
    try:
        recorder = _recorder(scene, arguments) if arguments.record else None
        watchers: list[Watch] = [recorder.capture] if recorder else []
        if arguments.expert:
            watchers.append(_expert_sender(scene, academy, arguments.env))

        def watch(steps: Steps, is_reset: bool) -> None:
            for each in watchers:
                each(steps, is_reset)

        yield scene, watch
    finally:
        try:
            if recorder:
                _save(recorder, arguments.record)
        finally:
            scene.close()


def _trainer(arguments: argparse.Namespace) -> int | TrainerConnection:
    """The trainer's port on this machine, or the way to one on another. Raises SceneError."""
    if arguments.join is None:
        return int(arguments.mlagents_port)
    try:
        return TrainerConnection(JoinCode.given(arguments.join), arguments.address)
    except RemoteError as error:
        raise SceneError(str(error)) from None


def _run(
    scene: Scene,
    academy: Academy,
    watch: Watch,
    arguments: argparse.Namespace,
    trainer: int | TrainerConnection,
) -> int:
    reason = run(
        scene,
        trainer,
        seed=arguments.seed,
        episodes=arguments.episodes,
        watch=watch,
        connect_timeout_s=arguments.connect_timeout,
        # A launched simulator must not outlive its trainer: a new trainer starts another.
        reconnect_s=0.0 if LAUNCHED in os.environ else arguments.reconnect,
        say=lambda news: print(harmless(f"{arguments.env}: {news}"), file=sys.stderr),
        academy=academy,
    )
    print(harmless(f"{arguments.env}: {reason}"), file=sys.stderr)
    return 0


def _recorder(scene: Scene, arguments: argparse.Namespace) -> FilmRecorder | BestEpisodeRecorder:
    episodes, seconds = arguments.record_episodes, arguments.record_seconds
    if arguments.record_best:
        return BestEpisodeRecorder(scene, arguments.record, seconds=seconds)
    return FilmRecorder(scene, arguments.record, episodes=episodes, seconds=seconds)


def _expert_sender(scene: Scene, academy: Academy, env: str) -> Watch:
    """Returns what sends the expert's actions along with each message. Raises SceneError where there is no expert."""
    if not isinstance(scene, Demonstrator):
        raise SceneError(f"--expert: {no_expert(env)}")
    demonstrator = scene

    def send(steps: Steps, is_reset: bool) -> None:
        academy.send(expert_record(demonstrator.expert()))

    return send


def _save(recorder: FilmRecorder | BestEpisodeRecorder, path: Path) -> None:
    try:
        frames = recorder.save()
    except OSError as error:
        raise SceneError(f"--record {path}: {error.strerror or error}") from error
    if frames:
        print(f"{path}: {frames} frames", file=sys.stderr)


def _fail(message: object, code: int) -> int:
    print(harmless(f"error: {message}"), file=sys.stderr)
    return code


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked. Arguments of Unity players without a use here are ignored.

    Raises:
        SceneError: an argument that cannot be used.
    """
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    _refuse_misspelt(parser, unknown)
    if arguments.record and (problem := recording_problem(arguments.record)):
        parser.error(f"--record: {problem}")
    if arguments.address and arguments.join is None:
        parser.error("--address: expected --join with it, which says what the trainer there has to show")
    return arguments


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors: the simulator may be a part of a process that continues."""

    def error(self, message: str) -> NoReturn:
        raise SceneError(f"{message}: {ENVIRONMENTS}" if message.endswith("required: ENV") else message)


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mlagents-style simulate",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Attaches an environment to a running trainer, as a Unity build would attach.",
        epilog="scenes:\n"
        + "\n".join(f"  sim:{name:<10}{_summary(name)}" for name in (*SCENES, *GROUP_SCENES)),
    )
    add = parser.add_argument
    add("env", metavar="ENV", help=ENVIRONMENTS)
    _add_trainer_options(parser)
    add(
        "--agents", type=_from(1), metavar="N",
        help="how many agents, or copies of a single agent (default: the scene's own number)",
    )  # fmt: skip
    add("--seed", type=_from(0), metavar="S", help="of the scene (default: what the trainer says)")
    add("--episodes", type=_from(1), metavar="N", help="leave after so many complete episodes")
    _add_recording_options(parser)
    add(
        "--expert", action="store_true",
        help="send along what the scene's own expert would do, for opponents that play like it",
    )  # fmt: skip
    add(
        "--pictures", choices=get_args(PictureFormat),
        help="how cameras send what they see: compressed, or as plain floats (default png)",
    )  # fmt: skip
    add(
        "--parameter", type=_parameter, action="append", default=[], metavar="NAME=VALUE",
        help="hold an environment parameter at a value, whatever the trainer says; can be repeated",
    )  # fmt: skip
    kwargs = f"arguments of an environment of {named_schemes()}, or in a file, such as "
    add("--env-kwargs", type=_json_object, metavar="JSON", help=kwargs + """'{"continuous": true}'""")
    _add_group_options(parser)
    add_arguments(parser)
    # A Unity player knows these; the bundled simulator draws nothing and writes no log.
    for flag in ("-nographics", "-batchmode"):
        add(flag, action="store_true", help=argparse.SUPPRESS)
    add("-logFile", "-logfile", help=argparse.SUPPRESS)
    return parser


def _add_recording_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        # absolute, before the environment changes the folder
        "--record", type=lambda path: Path(path).absolute(), metavar="FILE",
        help="save what it looks like from the beginning, when all is over: a .gif or an .mp4 file",
    )  # fmt: skip
    add("--record-episodes", type=_from(1), metavar="N", help="record so many episodes of the first agent")
    add("--record-best", action="store_true", help="record the first agent's episode with the highest return")
    add(
        "--record-seconds", type=_from(0, float), default=LONGEST_S, metavar="S",
        help=f"record no more than that, in the scene's own time (default {LONGEST_S:g})",
    )  # fmt: skip


def _add_trainer_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--mlagents-port", type=partial(port_number, least=1), default=DEFAULT_PORT, metavar="N",
        help=f"the port on which the trainer listens on this machine, learn's --port (default {DEFAULT_PORT})",
    )  # fmt: skip
    add(
        "--join", nargs="?", const="", metavar="CODE",
        help=f"the join code of a trainer on another machine; without CODE that in {JOIN_VARIABLE}",
    )  # fmt: skip
    where = "where that trainer is (default: what its code says)"
    add("--address", type=_address, metavar="HOST:PORT", help=where)
    add(
        "--connect-timeout", type=_from(0, float), default=CONNECT_TIMEOUT_S, metavar="S",
        help=f"how long to wait for the trainer to listen (default {CONNECT_TIMEOUT_S:g})",
    )  # fmt: skip
    add(
        "--reconnect", type=_from(0, float), default=RECONNECT_S, metavar="S",
        help="how long to wait for another trainer when the connection breaks without a word; 0 leaves at once "
        f"(default {RECONNECT_S:g}; 0 for simulators that a trainer launches)",
    )  # fmt: skip


def _add_group_options(parser: argparse.ArgumentParser) -> None:
    for name, option in OPTIONS.items():
        scenes = [f"sim:{scene}" for scene, team in GROUP_SCENES.items() if name in team.options]
        named = " or ".join(filter(None, (*scenes, named_schemes(name, "or"))))
        explained = f"{option.meaning} ({named})"
        if option.is_switch:
            parser.add_argument(flag_of(name), action="store_true", default=None, help=explained)
        else:
            parser.add_argument(flag_of(name), type=_from(1), metavar="N", help=explained)


def _summary(name: str) -> str:
    if name in GROUP_SCENES:
        kind, flags = GROUP_SCENES[name].kind, _group_flags(name)
    else:
        kind, flags = SCENES[name].kind, _flags(SCENES[name])
    document = sys.modules[kind.__module__].__doc__ or ""
    return f"{document.partition(': ')[2].strip().rstrip('.')} ({', '.join(flags)})"


def _flags(scene: BundledScene) -> list[str]:
    flags = [f"--agents {scene.agents}"]
    flags += ["--pictures png"] if scene.has_camera else []
    return flags + [f"--parameter {parameter}={value:g}" for parameter, value in scene.parameters.items()]


def _group_flags(name: str) -> list[str]:
    given = {option: value for option, value in GROUP_SCENES[name].options.items() if value}
    return [f"{flag_of(option)} {value}" for option, value in given.items()]


def _refuse_misspelt(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    """Unity's own arguments have one dash and perhaps a value; anything else left over is a mistake."""
    before = ""
    for argument in unknown:
        is_unity_flag = argument.startswith("-") and not argument.startswith("--")
        is_its_value = before.startswith("-") and not argument.startswith("-")
        if not is_unity_flag and not is_its_value:
            flags = [flag for action in parser._actions for flag in action.option_strings]
            flag = argument.partition("=")[0]
            hint = did_you_mean(_OF_LEARN.get(flag, flag), flags, "did you mean {}?")
            parser.error(f"unknown argument {argument}{hint}")
        before = argument if is_unity_flag else ""


def _from(least: int, kind: type[int] | type[float] = int) -> Callable[[str], Any]:
    """Reads a finite number of at least this."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number from {least} on, got {text}")
        return value

    return number


def _address(text: str) -> str:
    try:
        split_address(text)
    except RemoteError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _parameter(text: str) -> FloatParameter:
    name, equals, value = text.partition("=")
    try:
        number = float(value)
        if not (name and equals and math.isfinite(number)):
            raise ValueError
        return FloatParameter(name, number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE with a number, got {text!r}") from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r} ({error})") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return value
