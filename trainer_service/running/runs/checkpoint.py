"""One behavior's checkpoint: a single file with all that a resumed run needs, read without unpickling."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainer_service.config import TrainerSettings, missing_plugins, plugins_of
from trainer_service.config.names import STATE_SUFFIXES
from trainer_service.config.values import shown
from trainer_service.errors import UserError
from trainer_service.running.curriculum import LessonHistory, LessonState
from trainer_service.running.runs.archive import ArchiveError, is_archive, read_tensors
from trainer_service.running.runs.files import Replacement, leftovers, sync_folder
from trainer_service.running.runs.layout import existing_state, is_replay_rows
from trainer_service.running.runs.replay_file import ReplaySave, ReplayStamp, read_stamp
from trainer_service.running.runs.tensor_file import TensorFileError, checksum_of, read_values, write_values
from unity_bridge.names import name_problem
from unity_bridge.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    MemberSpec,
    ObservationSpec,
    ObservationType,
)
from unity_bridge.untrusted_text import first_line

_FORMAT = 1
_MAX_PARTS = 1000
"""Limit of sensors, and of branches of actions."""
_MAX_AGENTS = 65_536
"""Limit of the agents of one member of a heterogeneous group."""
_MAX_NUMBERS = 2**24
"""Limit of the numbers in one observation: a picture of 2,000 x 2,000 in colour. Models are traced with as many."""
MISFIT_ERRORS = (AttributeError, LookupError, TypeError, ValueError, RuntimeError, MemoryError)
"""Exceptions of a learner that is built from foreign settings or loads a foreign state."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The complete state of one behavior at one step."""

    behavior: str
    step: int
    spec: BehaviorSpec
    settings: TrainerSettings
    algorithm: Mapping[str, Any]
    """State dict of the algorithm: tensors and plain Python."""
    self_play: Mapping[str, Any] | None = None
    """State dict of self-play: snapshots, ratings, the side that learns. None without self-play."""
    episodes: int = 0
    """Episodes of agents until then; 0 for a checkpoint of ML-Agents, which does not count them."""
    lessons: LessonState | None = None
    """Lessons of that moment; None without lessons, and for a checkpoint of ML-Agents."""
    env_steps: int = 0
    """Environment steps of the run until then; 0 for a checkpoint of ML-Agents, which does not count them."""


class NotFiniteError(UserError):
    """A checkpoint with NaN or infinite weights, which must not replace a good one."""


def save_checkpoint(checkpoint: Checkpoint, *paths: Path, replay: ReplaySave | None = None) -> None:
    """Writes the same bytes to every path, and replaces them together once all are written.

    ML-Agents' state beside each goes: it would be taken for the newest one day.

    replay: writes the replay buffer of the same moment.

    Raises:
        NotFiniteError: a tensor in it is not finite. Nothing was written.
        SaveError: a file could not be written.
    """
    if where := not_finite(checkpoint):
        raise NotFiniteError(
            f"'{checkpoint.behavior}' is not saved at step {checkpoint.step}: {where} is NaN or infinite"
        )
    first, *others = paths
    with Replacement() as files:
        written = files.write(first, partial(write_values, plain_checkpoint(checkpoint)))
        for path in others:
            files.copy(path, written)
        if replay is not None:
            replay(files, ReplayStamp(checkpoint.step, checksum_of(written)))
    ours, theirs = STATE_SUFFIXES
    for path in paths:
        if path.suffix == ours:
            with suppress(OSError):
                path.with_suffix(theirs).unlink()


def finish_save(path: Path, replay: Path) -> None:
    """Completes a save whose process was killed after the checkpoint had its name and before the replay buffer had.

    Every file of a save is on the disk before the first is renamed. So a replay buffer that has a temporary name and
    the stamp of this checkpoint is complete, and takes its place.

    Raises:
        OSError: a file could not be renamed.
    """
    waiting = leftovers(replay.parent)
    for each in waiting:
        if each.name == replay.name and _belongs_to(each.path, path):
            same_save = [other for other in waiting if other.process == each.process]
            rows = [other for other in same_save if is_replay_rows(replay, other.name)]
            for file in (*rows, each):  # the file that names the rows comes last, as in a save
                os.replace(file.path, replay.with_name(file.name))
            sync_folder(replay.parent)
            return


def _belongs_to(replay: Path, checkpoint: Path) -> bool:
    """Whether a replay buffer was saved with a checkpoint."""
    stamp = read_stamp(replay)
    try:
        return stamp is not None and stamp.checkpoint == checkpoint_digest(checkpoint)
    except (OSError, TensorFileError):
        return False


def snapshot(checkpoint: Checkpoint) -> Checkpoint:
    """A copy in the CPU's memory, which later updates leave alone. What shared memory shares that of the copy."""
    storages: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
    return replace(
        checkpoint,
        algorithm=_copied(checkpoint.algorithm, storages),
        self_play=_copied(checkpoint.self_play, storages),
    )


def _copied(content: Any, storages: dict[tuple[torch.device, int], torch.UntypedStorage]) -> Any:
    """Tensors as views of copied storages, in new containers; everything else as it is."""
    if isinstance(content, torch.Tensor):
        tensor, storage = content.detach(), content.untyped_storage()
        key = storage.device, storage.data_ptr()
        if key not in storages:
            room = torch.empty(storage.nbytes(), dtype=torch.uint8)
            storages[key] = room.untyped_storage().copy_(storage)
        view = torch.empty(0, dtype=tensor.dtype)
        return view.set_(storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())
    if isinstance(content, Mapping):
        return {key: _copied(part, storages) for key, part in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(_copied(part, storages) for part in content)
    return content


def plain_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as tensors and plain values: the record that ``parse_checkpoint`` understands."""
    return {
        "format": _FORMAT,
        "behavior": checkpoint.behavior,
        "step": checkpoint.step,
        "episodes": checkpoint.episodes,
        "env_steps": checkpoint.env_steps,
        "spec": _plain_spec(checkpoint.spec),
        "settings": checkpoint.settings.model_dump(mode="json"),
        "algorithm": dict(checkpoint.algorithm),
        "self_play": checkpoint.self_play,
        "plugins": plugins_of(checkpoint.settings),
        **({} if checkpoint.lessons is None else {"lessons": _plain_lessons(checkpoint.lessons)}),
    }


class UnreadableError(UserError):
    """A file that the system does not give, such as one without a permission: nothing says that it is damaged."""


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint onto the CPU.

    Raises:
        UserError: the file is missing, damaged, or was not written by this trainer.
    """
    return parse_checkpoint(read_content(path), path)


def has_gradient_steps(checkpoint: Checkpoint) -> bool:
    """Whether an optimizer of the algorithm has made a step, or none says that it has not."""
    steps = list(_optimizer_steps(checkpoint.algorithm))
    return not steps or any(each != 0 for each in steps)


def _optimizer_steps(state: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the number of steps of each optimizer in a state; None where it is not written down."""
    for key, part in state.items():
        if isinstance(part, Mapping):
            if key.endswith("optimizer"):
                yield part.get("steps")
            else:
                yield from _optimizer_steps(part)


def checkpoint_digest(path: Path) -> int | None:
    """A number that tells the checkpoints of two moments apart: the checksum in the file, which is not read.

    None for a checkpoint of ML-Agents, with which no replay buffer was saved.

    Raises:
        OSError: the file cannot be read.
        TensorFileError: it is no checkpoint.
    """
    return None if _is_archive(path) else checksum_of(path)


def read_content(path: Path) -> Any:
    """Reads the values of a checkpoint, of this trainer or of ML-Agents, onto the CPU. Executes nothing of the file.

    Where there is no such file, the state of the same name is read that has the other suffix.

    Raises:
        UserError: the file is missing or damaged, holds more than tensors and plain Python, or was written by torch,
            but not by ML-Agents.
    """
    path = existing_state(path)
    if path.suffix == ".onnx" and path.is_file():
        raise UserError(
            f"'{path}' is an exported model; expected a checkpoint, {' or '.join(STATE_SUFFIXES)}"
        )
    try:
        if not _is_archive(path):
            return read_values(path)
        content = read_tensors(path)
    except FileNotFoundError:
        raise UserError(f"checkpoint '{path}' does not exist") from None
    except OSError as error:
        raise UnreadableError(f"checkpoint '{path}' cannot be read: {error.strerror or error}") from None
    except (ArchiveError, TensorFileError) as error:
        raise UserError(f"checkpoint '{path}' is damaged: {first_line(error)}{_alternatives(path)}") from None
    if not _is_mlagents(content):
        raise UserError(f"'{path}' is not a checkpoint of this trainer or of ML-Agents{_alternatives(path)}")
    return content


def _is_mlagents(content: Any) -> bool:
    return isinstance(content, dict) and "Policy" in content


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return is_archive(file)


def parse_checkpoint(content: Any, path: Path) -> Checkpoint:
    """Builds a checkpoint from the content of one of this trainer's files, as ``read_content`` returns it.

    Raises:
        UserError: the content is not a checkpoint of this trainer.
    """
    if _is_mlagents(content):
        raise UserError(
            f"'{path}' was written by ML-Agents; make a run of it with: mlagents-style import-checkpoint"
        )
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"'{path}' is not a checkpoint of this trainer{_alternatives(path)}")
    if type(found := content["format"]) is not int or found != _FORMAT:
        raise UserError(f"checkpoint '{path}' has format {shown(found)}; this version reads {_FORMAT}")
    try:
        checkpoint = Checkpoint(
            behavior=_behavior_name(content["behavior"]),
            step=_count("step", content["step"]),
            spec=_spec(content["spec"]),
            settings=TrainerSettings.model_validate(content["settings"]),
            algorithm=_mapping(content["algorithm"]),
            self_play=None if content["self_play"] is None else _mapping(content["self_play"]),
            episodes=_count("number of episodes", content["episodes"]),
            lessons=_lessons(content["lessons"]) if "lessons" in content else None,
            env_steps=_count("number of environment steps", content["env_steps"]),
        )
        if where := not_finite(checkpoint):
            raise ValueError(f"{where} is NaN or infinite")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if missing := _missing_plugins(content):
            raise UserError(f"checkpoint '{path}' cannot be used: {missing}") from None
        raise UserError(f"cannot use checkpoint '{path}': {first_line(error)}{_alternatives(path)}") from None
    return checkpoint


def _plain_lessons(lessons: LessonState) -> dict[str, Any]:
    return {
        "numbers": dict(lessons.numbers),
        "recent_returns": list(lessons.history.recent_returns),
        "mean_returns": dict(lessons.history.mean_returns),
    }


def _lessons(plain: Mapping[str, Any]) -> LessonState:
    numbers = {name: _count("number of a lesson", number) for name, number in plain["numbers"].items()}
    levels = {name: float(level) for name, level in plain["mean_returns"].items()}
    return LessonState(numbers, LessonHistory(tuple(map(float, plain["recent_returns"])), levels))


def _missing_plugins(content: Mapping[str, Any]) -> str:
    """The missing plugins that a checkpoint needs, in words; empty if none is missing."""
    plugins = content.get("plugins")
    if not isinstance(plugins, dict):
        return ""
    remembered = {key: source for key, source in plugins.items() if isinstance(key, str)}
    return "; ".join(f"{key} {text}" for key, text in missing_plugins(remembered).items())


def _behavior_name(found: object) -> str:
    """Returns a name that can name files: models and recordings are named after their behavior."""
    if not isinstance(found, str):
        raise ValueError(f"expected the name of a behavior, got {shown(found)}")
    if reason := name_problem(found):
        raise ValueError(f"the behavior's name {shown(found)} {reason}")
    return found


def _mapping(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"expected a mapping of names, got {shown(found)}")
    return found


def _whole(found: object) -> int:
    if type(found) is not int:
        raise ValueError(f"expected a whole number, got {shown(found)}")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"expected a name, got {shown(found)}")
    return found


def _count(what: str, found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise ValueError(f"expected a {what}, got {shown(found)}")
    return found


def spec_mismatch(known: BehaviorSpec, declared: BehaviorSpec) -> str | None:
    """Describes how a declared behavior differs from the one a policy was trained for; None if it does not.

    A heterogeneous group may have any number of agents of each member.
    """
    if known == declared:
        return None
    before_members, now_members = ([member.behavior for member in spec.members] for spec in (known, declared))
    if before_members != now_members:
        return f"its members were {_listed(before_members)}, now {_listed(now_members)}"
    if known.action_spec != declared.action_spec:
        return f"actions were {_describe_actions(known.action_spec)}, now {_describe_actions(declared.action_spec)}"
    if len(known.observation_specs) != len(declared.observation_specs):
        return f"it had {len(known.observation_specs)} sensors, now {len(declared.observation_specs)}"
    for before, now in zip(known.observation_specs, declared.observation_specs, strict=True):
        if known.members and before.name != now.name:  # which member has it follows from the name
            return f"sensor '{now.name}' was called '{before.name}'"
        if before.shape != now.shape:
            return f"sensor '{now.name}' had shape {before.shape}, now {now.shape}"
        if before.observation_type != now.observation_type:
            return f"sensor '{now.name}' was {before.observation_type.name}, now {now.observation_type.name}"
    for member, other in zip(known.members, declared.members, strict=True):
        changed = spec_mismatch(_spec_of(member), _spec_of(other))
        if changed is not None:
            return f"member '{member.behavior}': {changed}"
    return None


def _spec_of(member: MemberSpec) -> BehaviorSpec:
    return BehaviorSpec(member.observation_specs, member.action_spec)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def not_finite(checkpoint: Checkpoint) -> str:
    """Returns the name of the first tensor of a checkpoint that is not finite; empty if there is none.

    Collected experience is left out: NaN says there that an agent has no group.
    """
    learned = {key: value for key, value in checkpoint.algorithm.items() if key != "collected"}
    state = {"algorithm": learned, "self_play": checkpoint.self_play}
    return (_not_finite(state) or "").removeprefix(".")


def _not_finite(content: Any) -> str | None:
    """Returns the path of the first tensor that is not finite, such as ``.network.body``; None if there is none.

    The least and the greatest number tell, so nothing is allocated; 100 MB take 9 to 60 ms.
    """
    if isinstance(content, torch.Tensor):
        if not content.is_floating_point() or content.numel() == 0:
            return None
        return None if all(map(torch.isfinite, torch.aminmax(content.detach()))) else ""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(content, Mapping):
        items = content.items()
    elif isinstance(content, list | tuple):
        items = enumerate(content)
    for key, value in items:
        if (place := _not_finite(value)) is not None:
            return f".{key}{place}"
    return None


def _describe_actions(spec: ActionSpec) -> str:
    return f"{spec.continuous_size} continuous and branches {list(spec.discrete_branches)}"


def _alternatives(path: Path) -> str:
    """Names the newest numbered checkpoint beside a damaged one, as the end of a message; empty without one."""
    others = sorted(
        (other for suffix in STATE_SUFFIXES for other in path.parent.glob(f"*-*{suffix}") if other != path),
        key=lambda other: other.stat().st_mtime,
        reverse=True,
    )
    if not others:
        return ""
    return f". The newest other checkpoint is '{others[0]}'"


def _plain_spec(spec: BehaviorSpec) -> dict[str, Any]:
    plain = _plain_part(spec)
    if spec.members:
        plain["members"] = [
            {"behavior": member.behavior, "num_agents": member.num_agents, **_plain_part(member)}
            for member in spec.members
        ]
    return plain


def _plain_part(spec: BehaviorSpec | MemberSpec) -> dict[str, Any]:
    return {
        "observations": [
            {
                "name": sensor.name,
                "shape": list(sensor.shape),
                "dimension_property": [int(flag) for flag in sensor.dimension_property],
                "observation_type": int(sensor.observation_type),
                "float_order": sensor.float_order,
                **({"added": True} if sensor.added else {}),
            }
            for sensor in spec.observation_specs
        ],
        "actions": {
            **asdict(spec.action_spec),
            "discrete_branches": list(spec.action_spec.discrete_branches),
        },
    }


def _spec(plain: Mapping[str, Any]) -> BehaviorSpec:
    members = plain.get("members", ())
    if len(members) > _MAX_PARTS:
        raise ValueError(f"expected at most {_MAX_PARTS} members of a team, got {len(members)}")
    return BehaviorSpec(_sensors(plain), _actions(plain), tuple(map(_member, members)))


def _member(plain: Mapping[str, Any]) -> MemberSpec:
    agents = _whole(plain["num_agents"])
    if agents > _MAX_AGENTS:
        raise ValueError(f"expected at most {_MAX_AGENTS} agents of a member, got {agents}")
    return MemberSpec(_behavior_name(plain["behavior"]), _sensors(plain), _actions(plain), agents)


def _sensors(plain: Mapping[str, Any]) -> tuple[ObservationSpec, ...]:
    parts = max(len(plain["observations"]), len(plain["actions"]["discrete_branches"]))
    if parts > _MAX_PARTS:
        raise ValueError(f"expected at most {_MAX_PARTS} sensors and branches, got {parts}")
    sensors = tuple(
        ObservationSpec(
            name=_text(sensor["name"]),
            shape=tuple(map(_whole, sensor["shape"])),
            dimension_property=tuple(DimensionProperty(flag) for flag in sensor["dimension_property"]),
            observation_type=ObservationType(sensor["observation_type"]),
            float_order="hwc" if sensor["float_order"] == "hwc" else "chw",
            added=sensor.get("added") is True,
        )
        for sensor in plain["observations"]
    )
    if (numbers := sum(sensor.size for sensor in sensors)) > _MAX_NUMBERS:
        raise ValueError(f"expected agents that see at most {_MAX_NUMBERS} numbers, got {numbers}")
    return sensors


def _actions(plain: Mapping[str, Any]) -> ActionSpec:
    actions = plain["actions"]
    return ActionSpec(_whole(actions["continuous_size"]), tuple(map(_whole, actions["discrete_branches"])))
