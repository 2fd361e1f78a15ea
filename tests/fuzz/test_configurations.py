"""Configurations that were changed, and such as were written to break the reader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzzing import DICE, MIB, examples, peak_memory
from hypothesis import given
from mutations import INTEGERS, mutated_bytes, require_fit_to_print

from trainer_service.config import load_run_options
from trainer_service.errors import UserError

REPOSITORY = Path(__file__).parents[2]
OFFICIAL = sorted((REPOSITORY / "configs").glob("*.yaml"))
LONGEST = 20_000
"""Characters of all mistakes of a file together, each of which has a line."""

TOKENS = (
    "!!python/object/apply:os.system [\"touch pwned\"]", "!!python/name:os.system", "!!binary aGk=", "&a [*a]", "*a",
    "<<: *a", "? [a]", "{", "[" * 60, "1:1:1:1", "2001-99-99", ".nan", "-.inf", "1e999", "0x" + "f" * 5000, "null",
    "\t", "- -", "%YAML 9.9", "---", "\x07", "\u2028", "9" * 5000, "!!int x", "!!timestamp x", "!!set {a, b}", "'", '"',
)  # fmt: skip


def load(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    said = ""
    try:
        load_run_options(path)
    except UserError as error:
        said = str(error)
    require_fit_to_print(said, LONGEST)
    assert not [word for word in ("Input should", "pydantic", "validation", "NoneType") if word in said]


@examples(250)
@given(dice=DICE)
def test_a_configuration_that_was_changed(tmp_path_factory, dice: random.Random) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines = dice.choice(OFFICIAL).read_bytes().splitlines(keepends=True)
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(lines))
        way = dice.randrange(5)
        key, colon, _ = lines[place].partition(b":")
        if way == 0:
            lines[place] = mutated_bytes(dice, lines[place])
        elif way == 1:
            lines[place] = key + colon + b" " + dice.choice(TOKENS).encode() + b"\n"
        elif way == 2:
            lines[place] = key + colon + b" " + str(dice.choice(INTEGERS)).encode() + b"\n"
        elif way == 3:
            lines[place:place] = [lines[dice.randrange(len(lines))]]
        else:
            del lines[place : place + 3]
        lines = lines or [b"\n"]
    load(folder / "changed.yaml", b"".join(lines))


BOMBS = {
    "brackets": b"[" * 5000,
    "braces": b"{a: " * 5000,
    "a long list": b"a: [" + b"1," * 120_000 + b"1]",
    "merges": b"a: &a {k: v}\nb:\n" + b"".join(b"  <<: *a\n" for _ in range(4500)),
    "aliases": b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (i + 1, i + 1, b",".join([b"*a%d" % i] * 9)) for i in range(9)),
    "itself": b"a: &a [*a]",
    "sexagesimal": b"a: " + b"1:" * 2000 + b"1",
    "large": b"#" * (100 * MIB),
    "object": b"a: !!python/object/apply:os.system ['touch pwned']",
    "unit separators": b"a: \x1f",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = peak_memory()
    (tmp_path / "bomb.yaml").write_bytes(BOMBS[name])
    with pytest.raises(UserError) as refused:
        load_run_options(tmp_path / "bomb.yaml")
    require_fit_to_print(str(refused.value), LONGEST)
    assert peak_memory() - before < 200 * MIB
    assert not (tmp_path / "pwned").exists()
