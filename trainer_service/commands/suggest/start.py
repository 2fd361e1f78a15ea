"""The start of a run without a configuration: the environment is looked at, and settings are chosen."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from trainer_service.commands.suggest.document import Suggestion, suggestion_of
from trainer_service.commands.suggest.features import EnvironmentFeatures
from trainer_service.commands.suggest.probe import probe
from trainer_service.config import RunOptions, load_run_options, parse_run_options
from trainer_service.config.reading.document import read_document
from trainer_service.config.reading.merge import merged
from trainer_service.errors import UserError
from trainer_service.running.callbacks import Callback, RunView
from trainer_service.running.collection.attach_port import AttachPort
from trainer_service.running.collection.goal_task import goal_task_of
from trainer_service.running.collection.launching import command_of
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.folder import require_run_id
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.training.learner_ranks import num_learners, serves_rank_0
from unity_bridge.programs.executables import Command, bundled_command
from unity_bridge.programs.program_environment import ProgramEnvironment
from unity_bridge.simulators.registry import copies_of
from unity_bridge.simulators.scene import SceneError

_COPIES_FLAGS = ("--agents", "--copies", "--vector")

_logger = logging.getLogger(__name__)


class SuggestionWriter(Callback):
    """Writes a suggestion into the folder of the run that uses it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def on_run_start(self, run: RunView) -> None:
        write_atomic(RunLayout(run.folder).suggestion, self._text)


def without_configuration(
    options: RunOptions,
    overrides: Mapping[str, Any],
    *,
    given: ProgramEnvironment | None = None,
    wanted: bool | None = None,
    attach_port: AttachPort | None = None,
) -> tuple[RunOptions, list[Callback]]:
    """The options of a run that was started without a configuration, and a callback that records the suggestion.

    A run that continues keeps the configuration in its folder.

    Args:
        options: the built-in settings with the settings of the command line.
        overrides: the settings of the command line, which win over a suggestion.
        given: the environment object, if the environment has no name.
        wanted: whether settings are suggested; None suggests them for environments that are started.
        attach_port: the port at which a simulator may attach for the suggestion.

    Raises:
        UserError: the environment has no agents.
        BridgeError: the simulator could not be started, or failed.
    """
    saved, is_started = options.checkpoint_settings, options.env_settings.env_path is not None
    if serves_rank_0():
        return options, []
    layout = RunLayout(Path(saved.results_dir, saved.run_id))
    if saved.resume and layout.has_run() and not layout.configuration.is_file():
        raise UserError(
            f"--resume: '{layout.configuration}' is missing; pass the configuration of the run to learn"
        )
    if saved.resume or saved.inference:
        if layout.configuration.is_file():
            return _of_run(layout, options, overrides), []
        return _built_in(options, overrides), []
    if wanted is False:
        return _built_in(options, overrides), []
    if not (is_started or wanted):
        _logger.info(
            "No configuration: simulators that attach learn with ML-Agents' defaults. Use --suggest to look at one "
            "first."
        )
        return _built_in(options, overrides), []
    require_run_id(saved.results_dir, saved.run_id, force=saved.force)  # before the look, which takes a while
    found = look_at(options, given, attach_port)
    for line in found.lines():
        _logger.info("Suggested for %s", line)
    if (steps := overrides.get("max_steps")) is not None:
        _logger.info("max_steps is %s, as given, in the place of the suggested number.", steps)
    if not is_started:
        _logger.info("The settings are chosen. Start the simulator again to train.")
    text = found.to_yaml()
    return _from_text(text, options, overrides), [SuggestionWriter(text)]


def _built_in(options: RunOptions, overrides: Mapping[str, Any]) -> RunOptions:
    """The options, whose behaviors are of the built-in trainer type. Raises ConfigError if the overrides are not."""
    load_run_options(None, overrides)
    return options


def look_at(
    options: RunOptions, given: ProgramEnvironment | None, attach_port: AttachPort | None = None
) -> Suggestion:
    """Plays the environment of a run at random, and suggests settings for it."""
    environment = options.env_settings
    if environment.env_path is None:
        if attach_port is None:
            raise UserError("env: expected an environment to look at, got none")
        access = attach_port.access()
        _logger.info("A simulator is needed to suggest settings for: start it now.")
        features = probe(options, lambda bridge: attach_port.listen(bridge, access, None))
        return suggestion_of(_judged(features, options, None), {})
    arguments = with_copies(environment.env_path, environment.env_args or ())
    chosen = environment.model_copy(update={"env_args": arguments})
    options = options.model_copy(update={"env_settings": chosen})
    command = command_of(options) if given is None else bundled_command(given.env, arguments, given)
    assert command is not None
    features = _judged(probe(options, lambda bridge: bridge.launch(command)), options, command)
    named: dict[str, Any] = {} if given is not None else {"env_path": environment.env_path}
    return suggestion_of(features, {**named, **({"env_args": list(arguments)} if arguments else {})})


def _judged(
    features: EnvironmentFeatures, options: RunOptions, command: Command | None
) -> EnvironmentFeatures:
    """The features, with the reasons against hindsight replay. Warns of behaviors none of whose episodes ended."""
    for behavior in features.behaviors:
        if behavior.agents and not behavior.episodes:
            _logger.warning(
                "No episode of '%s' ended in %d messages: does the environment return terminated or truncated? A "
                "single-agent environment of Gymnasium gets a limit with --env-args --wrap TimeLimit:500, an object "
                "with gymnasium.wrappers.TimeLimit; others must truncate by themselves (docs/simulators.md).",
                behavior.name, features.messages,
            )  # fmt: skip
    try:
        with ExitStack() as stack:
            if any(behavior.states_goals for behavior in features.behaviors):
                goal_task_of(command, num_learners(options), stack)
    except SceneError as error:
        judged = (replace(behavior, no_hindsight=str(error)) for behavior in features.behaviors)
        return replace(features, behaviors=tuple(judged))
    return features


def _of_run(layout: RunLayout, options: RunOptions, overrides: Mapping[str, Any]) -> RunOptions:
    """The options that a run had, below the command line. Raises ConfigError if its configuration cannot be read."""
    _logger.info("Without a configuration the run keeps its own: %s", layout.configuration)
    values = dict(read_document(layout.configuration).values)
    values.pop("checkpoint_settings", None)
    environment, now = dict(values.get("env_settings") or {}), options.env_settings
    arguments = now.env_args
    if arguments and now.env_path is not None and layout.suggestion.is_file():
        arguments = tuple(with_copies(now.env_path, arguments))
    if now.env_path not in (None, environment.get("env_path")):
        environment.update(env_path=now.env_path, env_args=None)  # those were of the other
    if arguments:
        environment["env_args"] = list(arguments)
    return _below(overrides, values, environment, str(layout.configuration))


def _below(
    overrides: Mapping[str, Any], values: Mapping[str, Any], environment: Mapping[str, Any], label: str
) -> RunOptions:
    """The options of a configuration and its environment below the command line.

    Default settings of the command line hold for each behavior, and for others only if the configuration has some.
    """
    defaults = overrides.get("default_settings") or {}
    listed = values.get("behaviors") or {}
    behaviors = {name: merged(settings, defaults) for name, settings in listed.items()}
    others = {key: value for key, value in overrides.get("env_settings", {}).items() if key != "env_args"}
    lying_over = {**overrides, "env_settings": {**environment, **others}}
    if values.get("default_settings") is None:
        lying_over.pop("default_settings", None)
    return parse_run_options({**values, "behaviors": behaviors}, lying_over, label=label).options


def _from_text(text: str, options: RunOptions, overrides: Mapping[str, Any]) -> RunOptions:
    """The options that a suggestion makes with the command line."""
    values = yaml.safe_load(text)
    environment = values.pop("env_settings", {})
    given = options.env_settings.env_args
    if options.env_settings.env_path is not None and given:
        environment["env_args"] = with_copies(options.env_settings.env_path, given)
    return _below(overrides, values, environment, "suggested settings")


def with_copies(env: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a simulator, with a number of copies where its user gave none and its scheme takes one."""
    flag, copies = copies_of(env)
    if not copies or any(argument.startswith(_COPIES_FLAGS) for argument in arguments):
        return tuple(arguments)
    return (*arguments, flag, str(copies))
