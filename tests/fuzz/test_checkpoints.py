"""Checkpoints that were changed: nothing in them is executed, and every refusal is one for users."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import random
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fuzzing import DICE, MIB, examples, peak_memory
from hypothesis import given
from mutations import INTEGERS, mutated_archive, mutated_bytes, require_fit_to_print

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.rollout.agent_padding import padded_spec
from trainer_service.running.interop.mlagents_checkpoint import MLAgentsCheckpoint, load_source
from trainer_service.running.runs import tensor_file
from trainer_service.running.runs.checkpoint import Checkpoint, save_checkpoint
from unity_bridge.specs import ActionSpec, MemberSpec, ObservationSpec

MLAGENTS_RUNS = Path(__file__).parents[1] / "trainer_service" / "mlagents_runs"
EXECUTED: list[str] = []
"""What a pickle called; must stay empty."""


def execute(word: str) -> str:
    EXECUTED.append(word)
    return word


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    body = ObservationSpec("body", (3,))
    members = (
        MemberSpec("Left", (body,), ActionSpec(2), 1),
        MemberSpec("Right", (body,), ActionSpec(0, (3,)), 2),
    )
    spec = padded_spec(members)
    state = {"weights": {"a": torch.zeros(3, 4), "b": torch.ones(5)}, "count": 3, "rates": [0.1, None]}
    return Checkpoint("Ball", 100, spec, TrainerSettings(), state)


@pytest.fixture(scope="module")
def written(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("today") / "checkpoint.safetensors"
    save_checkpoint(checkpoint, path)
    assert isinstance(load_source(path), Checkpoint)
    return path


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ML-Agents wrote it."""
    path = tmp_path_factory.mktemp("theirs") / "checkpoint.pt"
    shutil.copy(MLAGENTS_RUNS / "hybrid" / "Hybrid" / "checkpoint.pt", path)
    assert isinstance(load_source(path), MLAgentsCheckpoint)
    return path


def load(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    before, refusal = peak_memory(), ""
    try:
        load_source(path)
    except UserError as error:
        refusal = str(error)
    require_fit_to_print(refusal)
    assert "weights_only=False" not in refusal
    assert not EXECUTED
    assert peak_memory() - before < 256 * MIB


def mutated_header(dice: random.Random, data: bytes) -> bytes:
    """A header with one part changed, or the values in it."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata, tensors = header["__metadata__"], [name for name in header if name != "__metadata__"]
    way = dice.randrange(5)
    if way == 0:
        metadata["values"] = mutated_bytes(dice, metadata["values"].encode()).decode("utf-8", "replace")
    elif way == 1:
        header[dice.choice(tensors)]["shape"] = [dice.choice(INTEGERS) for _ in range(dice.randrange(4))]
    elif way == 2:
        header[dice.choice(tensors)]["data_offsets"] = [dice.choice(INTEGERS), dice.choice(INTEGERS)]
    elif way == 3:
        header[dice.choice(tensors)]["dtype"] = dice.choice(["F64", "BOOL", "F8_E4M3", "C64", "F4", "", None])
    else:
        metadata[dice.choice(["values", "crc32"])] = dice.choice(["", "[" * 100_000, "{}", None, 3, {}])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def mutated_pickle(dice: random.Random, data: bytes) -> bytes:
    """A pickle with one of its operations changed: another one, another argument, left out, or twice."""
    try:
        places = [place for _, _, place in pickletools.genops(data) if place is not None]
    except ValueError:  # another file of the archive
        return mutated_bytes(dice, data)
    at = dice.randrange(len(places))
    start, stop = places[at], places[at + 1] if at + 1 < len(places) else len(data)
    way = dice.randrange(5)
    if way == 0:
        return data[:start] + dice.choice(pickletools.opcodes).code.encode("latin1") + data[start + 1 :]
    if way == 1:
        return data[:start] + data[stop:]
    if way == 2:
        return data[:stop] + data[start:stop] + data[stop:]
    if way == 3:
        number = dice.choice(INTEGERS) % 2**31
        return data[:start] + b"J" + number.to_bytes(4, "little") + data[stop:]
    return mutated_bytes(dice, data)


@examples(250)
@given(dice=DICE)
def test_a_checkpoint_that_was_changed(written: Path, dice: random.Random) -> None:
    load(written.with_name("changed.safetensors"), mutated_bytes(dice, written.read_bytes()))


@examples(250)
@given(dice=DICE)
def test_a_checkpoint_whose_header_was_changed(written: Path, dice: random.Random) -> None:
    """Its checksum is not compared: what is behind it must hold by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "_said", lambda _: 0)
        patch.setattr(tensor_file, "_checksum", lambda *_: 0)
        load(written.with_name("changed.safetensors"), mutated_header(dice, written.read_bytes()))


@pytest.mark.parametrize("mutate", [mutated_bytes, mutated_archive], ids=["bytes", "archive"])
@examples(100)
@given(dice=DICE)
def test_a_checkpoint_of_ml_agents_that_was_changed(
    theirs: Path, mutate: Callable, dice: random.Random
) -> None:
    load(theirs.with_name("changed.pt"), mutate(dice, theirs.read_bytes()))


@examples(150)
@given(dice=DICE)
def test_a_checkpoint_whose_pickle_was_changed(theirs: Path, dice: random.Random) -> None:
    load(theirs.with_name("changed.pt"), mutated_archive(dice, theirs.read_bytes(), mutated_pickle))


class Executes:
    """An object whose pickle calls ``execute``."""

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        return execute, ("pickle",)


def archive(content: bytes, **more: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/version", b"3\n")
        file.writestr("archive/byteorder", b"little")
        for name, body in more.items():
            file.writestr(name.replace("__", "/"), body)
    return out.getvalue()


HOSTILE = {
    "plain pickle": lambda: pickle.dumps(Executes()),
    "pickle in an archive": lambda: archive(pickle.dumps(Executes(), 2)),
    "os.system": lambda: archive(b"cos\nsystem\n(S'true'\ntR."),
    "builtins.eval": lambda: archive(b"c__builtin__\neval\n(S'1'\ntR."),
    "an instance": lambda: archive(b"(cos\nsystem\nS'true'\no."),
    "build": lambda: archive(b"}}S'__class__'\nNsb."),
    "a memo that is not there": lambda: archive(b"h\xff."),
    "nothing on the stack": lambda: archive(b"R."),
    "deep": lambda: archive(b"]" * 100_000 + b"a" * 99_999 + b"."),
    "many opcodes": lambda: archive(b"]0" * 1_000_000 + b"N."),
    "empty": lambda: archive(b""),
    "inflating": lambda: archive(b"N.", archive__data__0=bytes(400 * MIB)),
    "a tar": lambda: b"ustar" + bytes(2000),
    "numbers": lambda: archive(pickle.dumps({"Policy": 3, "global_step": []}, 2)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_checkpoint(name: str, tmp_path: Path) -> None:
    load(tmp_path / "hostile.safetensors", HOSTILE[name]())


def test_a_checkpoint_with_a_behavior_outside_the_run_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(replace(checkpoint, behavior="../../esc/pwn"), tmp_path / "out.safetensors")
    with pytest.raises(UserError, match=r"the behavior's name '\.\./\.\./esc/pwn' must not contain slashes"):
        load_source(tmp_path / "out.safetensors")
