"""Data sets of Minari as recordings, and recordings as data sets of Minari."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer_service.errors import UserError
from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile, DemonstrationWriter
from unity_bridge.extras import install_hint
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import join_observations

if TYPE_CHECKING:
    from unity_bridge.simulators.foreign.roles import Interface

PREFIX = "minari:"
"""The beginning of a data set's name, where a recording may stand as well."""

# Minari and Gymnasium come with an extra: they are imported where they are needed.


def dataset_to_recording(dataset_id: str, path: Path, behavior: str | None = None) -> tuple[str, int, int]:
    """Writes all episodes of a data set on this machine into a recording.

    Observations and actions get the sensors and actions that ``gym:`` gives the same spaces, so a policy that learned
    from the recording plays there.

    Args:
        dataset_id: a data set's name, without the prefix.
        path: of the recording.
        behavior: the name of its behavior; None is the id of the data set's environment, or the data set's own name.

    Returns:
        The behavior's name, the number of episodes and of their steps.

    Raises:
        UserError: Minari is missing; the data set is missing, unreadable or has no episodes; a space is
            no vector, picture or choice; or an episode does not fit the spaces.
        DemonstrationError: the file cannot be written.
    """
    minari = _require_minari()
    code = ForeignCode(f"'{PREFIX}{dataset_id}'")
    try:
        dataset = code.call("loading it", minari.load_dataset, dataset_id)
        if not dataset.total_episodes:
            raise code.error("expected episodes, found none")
        return _record(dataset, code, path, behavior)
    except SceneError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UserError(
                f"'{PREFIX}{dataset_id}': no such data set on this machine; 'minari download {dataset_id}' loads it"
            ) from None
        raise UserError(str(error)) from None


def _record(dataset: Any, code: ForeignCode, path: Path, behavior: str | None) -> tuple[str, int, int]:
    """Writes a data set's episodes. All but ``code`` as for ``dataset_to_recording``. Raises SceneError."""
    from unity_bridge.simulators.foreign.roles import interface_of

    interface = code.call("spaces", interface_of, dataset.observation_space, dataset.action_space, code)
    spec = BehaviorSpec(tuple(sensor.spec for sensor in interface.sensors), interface.actuator.spec)
    environment = None if dataset.env_spec is None else dataset.env_spec.id
    name = behavior or environment or str(dataset.id).rpartition("/")[2].rpartition("-v")[0]
    episodes, steps = dataset.iterate_episodes(), 0
    with DemonstrationWriter(path, name, spec, name=path.stem) as writer:
        for number in range(dataset.total_episodes):
            of_episode = ForeignCode(f"{code.name}, episode {number}")
            segment = of_episode.call("reading it", lambda: _segment(next(episodes), interface))
            writer.write(segment)
            steps += len(segment)
    return name, dataset.total_episodes, steps


def _segment(episode: Any, interface: Interface) -> DemonstratedSegment:
    """Raises SceneError where its arrays do not fit each other or the spaces, or hold values that are not finite."""
    steps = len(episode.rewards)
    if not steps:
        raise SceneError("expected steps, found none")
    spec = interface.actuator.spec
    seen = [sensor.read_batch(episode.observations) for sensor in interface.sensors]
    continuous, discrete = interface.actuator.read(episode.actions)
    for what, values, shape in (
        *((f"observations of '{each.spec.name}'", values, (steps + 1, *each.spec.shape))
          for each, values in zip(interface.sensors, seen, strict=True)),
        ("continuous actions", continuous, (steps, spec.continuous_size)),
        ("discrete actions", discrete, (steps, spec.discrete_size)),
        ("rewards", episode.rewards, (steps,)),
        ("terminations", episode.terminations, (steps,)),
        ("truncations", episode.truncations, (steps,)),
    ):  # fmt: skip
        if np.shape(values) != shape:
            raise SceneError(f"{what}: expected shape {shape} for {steps} steps, got {np.shape(values)}")
        if not np.isfinite(values).all():
            raise SceneError(f"{what}: expected finite numbers, got {values[~np.isfinite(values)][0]}")
    if ((discrete < 0) | (discrete >= spec.discrete_branches)).any():
        raise SceneError(f"an action is outside its space {interface.actuator.space!s:.80}")
    terminated = bool(episode.terminations[-1])
    return DemonstratedSegment(
        observations=tuple(values[:steps] for values in seen),
        continuous_actions=continuous.astype(np.float32),
        discrete_actions=discrete,
        rewards=np.asarray(episode.rewards, np.float32),
        group_rewards=np.zeros(steps, np.float32),
        final_observations=tuple(values[steps:] for values in seen),
        terminated=terminated,
        truncated=bool(episode.truncations[-1]) and not terminated,
        starts_episode=True,
    )


def recordings_to_dataset(files: list[DemonstrationFile], dataset_id: str) -> tuple[int, int]:
    """Makes a data set from recordings of one behavior. Returns the number of episodes and of their steps.

    The reward of a step is the agent's own plus its group's. Continuous actions are the executed ones, in [-1, 1].
    With several sensors an observation is a tuple.

    Raises:
        UserError: Minari is missing, or the data set cannot be made.
        DemonstrationError: a recording cannot be read.
    """
    minari = _require_minari()
    if not re.search(r"-v\d+$", dataset_id):
        raise UserError(
            f"'{PREFIX}{dataset_id}': expected a name that ends in a version, such as {dataset_id}-v0"
        )
    from minari.data_collector import EpisodeBuffer

    episodes = [parts for file in files for parts in _episodes(file)]
    pictures = [values.dtype == np.uint8 for values in episodes[0][0].observations] if episodes else []
    buffers: list[Any] = []
    for parts in episodes:
        seen = [
            join_observations(values) for values in zip(*(part.observations for part in parts), strict=True)
        ]
        ends = parts[-1].final_observations
        joined = tuple(join_observations(pair) for pair in zip(seen, ends, strict=True))
        rewards = np.concatenate([part.rewards + part.group_rewards for part in parts])
        last = np.arange(len(rewards)) == len(rewards) - 1
        buffers.append(
            EpisodeBuffer(
                id=len(buffers),
                observations=joined if len(joined) > 1 else joined[0],
                actions=_actions(parts, files[0].spec.action_spec),
                rewards=rewards.tolist(),
                terminations=(last & parts[-1].terminated).tolist(),
                truncations=(last & parts[-1].truncated).tolist(),
                infos={},
            )
        )
    code = ForeignCode(f"'{PREFIX}{dataset_id}'")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metadata that nobody has: an author, a repository
            code.call(
                "making it",
                minari.create_dataset_from_buffers,
                dataset_id,
                buffers,
                observation_space=_observation_space(files[0].spec, pictures),
                action_space=_action_space(files[0].spec.action_spec),
                algorithm_name=files[0].meta.demonstration_name,
                description=f"Recordings of {files[0].behavior_name}",
                jpeg_encoding=False,
            )
    except SceneError as error:
        raise UserError(str(error)) from None
    return len(buffers), sum(len(buffer) for buffer in buffers)


def _require_minari() -> Any:
    """The package. Raises UserError where it is not installed."""
    if not all(map(importlib.util.find_spec, ("minari", "h5py"))):
        raise UserError(f"{PREFIX}NAME: the package minari is not installed: {install_hint('minari')}")
    import minari

    return minari


def _episodes(file: DemonstrationFile) -> Iterator[list[DemonstratedSegment]]:
    """The segments of each episode."""
    parts: list[DemonstratedSegment] = []
    for segment in file.segments():
        if segment.starts_episode and parts:
            yield parts
            parts = []
        parts.append(segment)
    if parts:
        yield parts


def _actions(parts: list[DemonstratedSegment], spec: ActionSpec) -> Any:
    """All actions of an episode, as members of ``_action_space``."""
    continuous = np.concatenate([part.continuous_actions for part in parts]).clip(-1.0, 1.0)
    discrete = np.concatenate([part.discrete_actions for part in parts])
    chosen = discrete[:, 0] if spec.discrete_size == 1 else discrete
    if spec.continuous_size and spec.discrete_size:
        return continuous, chosen
    return continuous if spec.continuous_size else chosen


def _action_space(spec: ActionSpec) -> Any:
    from gymnasium import spaces

    found: list[Any] = []
    if spec.continuous_size:
        found.append(spaces.Box(-1.0, 1.0, (spec.continuous_size,), np.float32))
    if spec.discrete_size:
        sizes = list(spec.discrete_branches)
        found.append(spaces.Discrete(sizes[0]) if len(sizes) == 1 else spaces.MultiDiscrete(sizes))
    return spaces.Tuple(found) if len(found) > 1 else found[0]


def _observation_space(spec: BehaviorSpec, pictures: list[bool]) -> Any:
    """A space for each sensor. pictures: which sensors are bytes."""
    from gymnasium import spaces

    def box(sensor: ObservationSpec, is_bytes: bool) -> Any:
        if is_bytes:
            return spaces.Box(0, 255, sensor.shape, np.uint8)
        low, high = (0.0, 1.0) if sensor.is_picture else (-np.inf, np.inf)
        return spaces.Box(low, high, sensor.shape, np.float32)

    found = [box(sensor, is_bytes) for sensor, is_bytes in zip(spec.observation_specs, pictures, strict=True)]
    return spaces.Tuple(found) if len(found) > 1 else found[0]
