"""The runs of a search: their configuration, their folder, and where they are trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from trainer_service.api.arguments import nested, require_known
from trainer_service.api.configuration import Configuration, configuration_values
from trainer_service.api.environments import Environment, EnvironmentLike, environment_for
from trainer_service.api.run_arguments import SETTINGS, RunArguments
from trainer_service.api.train import stop_signals
from trainer_service.config import validate_run_id
from trainer_service.config.reading.document import dotted
from trainer_service.config.section import plain_message, root_errors
from trainer_service.errors import ConfigError, UserError
from trainer_service.experiments.jobs import Place
from trainer_service.experiments.space import read_space
from trainer_service.metrics.console import Console
from trainer_service.training.stop_signals import StopSignals

SpaceLike = str | os.PathLike[str] | Mapping[str, Any]
"""The types of ``space``: the path of a file, or a mapping with the structure of one."""

_OF_ONE_RUN = {"force", "inference", "initialize_from"}
"""Arguments of ``train`` that searches do not have."""


_Settings = TypeVar("_Settings")


class Search:
    """A sweep or a population: runs of one configuration whose values differ, in a folder of their own."""

    def __init__(
        self,
        function: str,
        run_id: str,
        config: Configuration,
        space: SpaceLike,
        env: EnvironmentLike | None,
        *,
        env_args: Sequence[str] | None,
        env_kwargs: Mapping[str, Any] | None,
        settings: Any,
    ) -> None:
        """
        Args:
            function: as messages call it.
            run_id: names the folder where the settings do not.
            config, env, env_args, env_kwargs: as for ``train``.
            space: the values that are searched.
            settings: other arguments of ``train``.

        Raises:
            TypeError: an argument that ``train`` does not have, or that a search cannot use.
            UserError: something in the space, the configuration or the run id cannot be used.
        """
        known = {name: kind for name, kind in RunArguments.__annotations__.items() if name not in _OF_ONE_RUN}
        require_known(settings, known, function)
        results_dir, name = settings.pop("results_dir", None), settings.pop("run_id", None)
        name = run_id if name is None else name
        validate_run_id(name)
        self.folder = Path("results" if results_dir is None else results_dir) / name
        self.resume = bool(settings.pop("resume", None))
        self.seed: int | None = settings.pop("seed", None)
        self._ray_address = settings.pop("ray_address", None)
        self._insecure_ray = settings.pop("insecure_ray", None)
        environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
        self.configuration = runs_configuration(config, settings, environment)
        self.space = read_space(space)

    @contextmanager
    def running(
        self, jobs: int, verbose: int, stop: StopSignals | None
    ) -> Iterator[tuple[StopSignals, Place | None]]:
        """A context in which runs may start: what stops them, and where they run (None is this machine)."""
        with ExitStack() as stack:
            stack.enter_context(Console(tty=False, verbose=verbose, stream=sys.stderr))
            stop = stop or stack.enter_context(stop_signals())
            if self._ray_address is None:
                yield stop, None
                return
            from trainer_service.experiments.ray_jobs import ray_place

            place = ray_place(self._ray_address, jobs, insecure=bool(self._insecure_ray))
            yield stop, stack.enter_context(place)


def valid(kind: Callable[..., _Settings], **given: Any) -> _Settings:
    """Settings of a search. Raises ConfigError with all mistakes."""
    try:
        return kind(**given)
    except ValidationError as error:
        mistakes = [f"{dotted(each['loc'])}: {plain_message(each)}" for each in root_errors(error)]
        raise ConfigError(*mistakes) from None


def runs_configuration(
    config: Configuration, settings: Mapping[str, Any], environment: Environment
) -> dict[str, Any]:
    """The configuration of all runs, nested as in a file: with the environment, and without what names one run.

    Raises:
        UserError: it cannot be used, or the environment is an object of this process.
    """
    if environment.given is not None:
        raise UserError(
            f"env: runs are trained in other processes, and '{environment.given.env}' is an object of this one: give "
            "it a name (gym:MODULE:FUNCTION)"
        )
    overrides = nested({**settings, "env_path": environment.env_path}, SETTINGS)
    configuration = configuration_values(config, overrides)
    saved = configuration.get("checkpoint_settings") or {}
    simulators = dict(configuration.get("env_settings") or {})
    if environment.env_args is not None or environment.env_kwargs is not None:
        simulators["env_args"] = [*environment.arguments(simulators.get("env_args"))]
    others = {key: value for key, value in configuration.items() if key != "checkpoint_settings"}
    kept = {key: value for key, value in saved.items() if key == "autosave_interval_s"}
    return {**others, "env_settings": simulators, **({"checkpoint_settings": kept} if kept else {})}
