"""Training from a program."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from trainer_service.commands.common.configuration import Configuration, read_run
from trainer_service.commands.common.environments import EnvironmentLike, environment_for
from trainer_service.commands.common.run_arguments import SETTINGS, RunArguments
from trainer_service.commands.common.settings import named, nested, require_known
from trainer_service.commands.report.live_curve import live_curve
from trainer_service.commands.suggest.start import without_configuration
from trainer_service.commands.train.run import Outcome
from trainer_service.commands.train.run import train as run_training
from trainer_service.config import RunOptions
from trainer_service.config.section import OF_STABLE_BASELINES
from trainer_service.errors import UserError
from trainer_service.running.collection.attach_port import EDITOR_PORT, AttachPort
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.notebook import in_notebook
from trainer_service.running.training.stop_signals import StopSignals
from unity_bridge.errors import BridgeError
from unity_bridge.programs.executables import bundled_command

if TYPE_CHECKING:
    from trainer_service.running.callbacks import Callback
    from unity_bridge.side_channels.channel_hub import SideChannel

_FLAG = re.compile(r"--[a-z][a-z-]*")

_logger = logging.getLogger(__name__)


def train(
    config: Configuration = None,
    env: EnvironmentLike | None = None,
    *,
    env_args: Sequence[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    side_channels: Sequence[SideChannel] | Callable[[int], Sequence[SideChannel]] = (),
    host: str = "127.0.0.1",
    port: int = EDITOR_PORT,
    insecure_listen: bool = False,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    token_file: str | PathLike[str] | None = None,
    max_steps: int | None = None,
    console: Console | None = None,
    verbose: int | None = None,
    stop: StopSignals | None = None,
    suggest: bool | None = None,
    **settings: Unpack[RunArguments],
) -> Outcome:
    """Trains as ``mlagents-style learn`` does; with ``inference`` it only acts.

    It returns when the step budgets are used, or when Ctrl-C (in a notebook: interrupting the kernel), SIGTERM, a
    terminal that closed or a callback asked it to stop; what was learned is saved then, and ``Outcome.interrupted`` is
    true. It raises KeyboardInterrupt for a second interrupt in a notebook or an interactive Python, and where the
    environment or a callback raises it; what was learned is saved then too. Outside the main thread it handles no
    signals. In a process that torchrun started, other than the first, it only computes its part of the updates.

    Args:
        config: the path of a YAML file, or the name of a ready one; a dictionary with the structure of one, or with the
            settings of one behavior (it has a ``trainer_type``), which then are every behavior's; or ``RunOptions``.
            None suggests settings for an environment that it starts; else it is PPO with the built-in settings.
        env: where agents live: what ``--env`` takes, such as ``"sim:3dball"`` or the path of a build; the id of an
            environment that is registered with Gymnasium; an environment of Gymnasium or PettingZoo; or a function or
            class that makes one. One simulator runs in this process, on a copy of an object; with ``num_envs`` or
            ``isolate=True`` objects are sent to processes of their own, as they are now. Without it and without
            ``env_path`` in the configuration ``resume`` keeps the run's own, except a build; else simulators may
            attach at ``host`` and ``port``.
        env_args: arguments for each of them, as after ``--env-args``; ``["--copies", "8"]`` puts eight of an object
            into each process.
        env_kwargs: keyword arguments of the environment that they host, where it is to be made.
        callbacks: code of your own that the run calls; see ``trainer_service.running.callbacks``.
        side_channels: channels of your own, such as subclasses of ``mlagents_envs.side_channel.SideChannel``:
            a list that all simulators share, or a function that makes those of simulator number n.
        host, port: where simulators may attach. Port 0 lets the system choose.
        insecure_listen: whether ``host`` may be an address that other machines reach without TLS and token. Whatever
            reaches the port is taken for a simulator then, and nothing is encrypted.
        tls_cert, tls_key: the certificate of the port and its private key, PEM files. Both are made if ``host`` is an
            address that other machines reach, and they are not given.
        token_file: the tokens that the port accepts; likewise.
        max_steps: agent steps of each behavior, in the place of its own ``max_steps``.
        console: where to show the run, entered already; a plain one if None.
        verbose: 0 shows nothing, 1 a line for each summary and warnings, 2 everything. None shows all but the settings
            and other details, which the run's log has. Only without a ``console``. Levels that you set for the loggers
            ``trainer_service`` and ``unity_bridge`` stay.
        stop: signals that end the run, already entered; if None, it handles signals from the call on.
        suggest: whether settings are suggested where ``config`` is None: the environment plays at random for a
            moment, and its features decide. None suggests them if ``env`` is given.
        settings: what else the flags of the command line say, such as ``run_id``, ``resume``, ``force``, ``seed``,
            ``num_envs``, ``time_scale`` and ``device``: see ``RunArguments``. They lie over the configuration in the
            same way; None leaves it as it is.

    Raises:
        UserError: something in the configuration, the run folder or a checkpoint cannot be used, or a callback failed.
        BridgeError: the simulators could not be started, or are gone.
        ValueError: two side channels have one id.
        TypeError: an argument that is not known.
    """
    for name in settings.keys() & OF_STABLE_BASELINES.keys():
        raise TypeError(
            f"train() got an unexpected keyword argument '{name}': that of Stable-Baselines3 is "
            f"{OF_STABLE_BASELINES[name]} here, in the configuration"
        )
    require_known(settings, RunArguments.__annotations__, "train")
    if verbose not in (None, 0, 1, 2):
        raise UserError(f"verbose: expected 0, 1, 2 or None, got {verbose!r}")
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    overrides = nested({**settings, "env_path": environment.env_path}, SETTINGS)
    if max_steps is not None:
        overrides["max_steps"] = max_steps
    attach_port = AttachPort(
        host=host,
        port=port,
        insecure_listen=insecure_listen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        token_file=token_file,
    )
    with _in_words_of_python(), ExitStack() as stack:
        loaded = read_run(config, overrides)
        options, own = environment.applied_to(loaded.options), environment.given
        console = console or stack.enter_context(_console(options, verbose))
        stop = stop or stack.enter_context(stop_signals())
        loaded.log(_logger)
        if config is None:
            options, recorders = without_configuration(
                options, overrides, given=own, wanted=suggest, attach_port=attach_port
            )
            callbacks = [*callbacks, *recorders]
        arguments = options.env_settings.env_args or ()
        return run_training(
            options,
            program=None if own is None else bundled_command(own.env, arguments, own),
            console=console,
            attach_port=attach_port,
            side_channels=side_channels,
            callbacks=callbacks,
            stop=stop,
        )


train = named(train, RunArguments)


@contextmanager
def _in_words_of_python() -> Iterator[None]:
    """A context whose errors name an argument of ``train``, such as ``resume=True``, where they would name its flag."""
    words = {
        each.flag: f"{name}=True" if each.kind == "bool" else f"{name}=" for name, each in SETTINGS.items()
    }
    words["--env"] = "env="
    try:
        yield
    except (UserError, BridgeError) as error:
        if error.args and isinstance(error.args[0], str):
            told = _FLAG.sub(lambda flag: words.get(flag[0], flag[0]), error.args[0])
            error.args = (told, *error.args[1:])
        raise


def stop_signals() -> StopSignals:
    """Signals that ask a run of this process to end. The second one only ends the process if no person works in it."""
    person = in_notebook() or hasattr(sys, "ps1")  # who would lose more than the run
    return StopSignals(ends_process=not person)


def _console(options: RunOptions, verbose: int | None) -> Console:
    """The console of a program or a notebook."""
    notebook = in_notebook()
    return Console(
        tty=False,
        notebook=notebook,
        chart=live_curve if notebook else None,
        debug=options.debug,
        log_format=options.log_format,
        verbose=verbose,
    )
