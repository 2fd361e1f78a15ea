"""Ready configurations are found by name, unless a file has that name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainer_service.config import bundled_configs, load_run_options
from trainer_service.config.reading.bundled import BundledConfig
from trainer_service.errors import ConfigError


@pytest.mark.parametrize("config", bundled_configs().values(), ids=bundled_configs())
def test_every_file_loads_and_says_what_it_is_and_for_which_env(config: BundledConfig) -> None:
    assert load_run_options(config.path).warnings == ()
    assert 10 <= len(config.description) < 200
    assert config.env.partition(":")[0] in ("sim", "gym", "gymma", "pettingzoo")
    assert f"configs/{config.path.name}" in config.path.read_text(encoding="utf-8")


def test_a_name_loads_the_bundled_file_wherever_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "basic").mkdir()  # a folder of that name is none the less
    assert set(load_run_options("basic").options.behaviors) == {"Basic"}


def test_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "basic").write_text("behaviors: {Mine: {trainer_type: ppo}}")
    assert set(load_run_options("basic").options.behaviors) == {"Mine"}


@pytest.mark.parametrize("path", ["basic.yaml", "configs/basic.yaml", "./somewhere/basic", "basik"])
def test_a_missing_file_is_never_replaced_but_the_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"not found .*; a bundled one is called 'basic'"):
        load_run_options(path)


@pytest.mark.process
def test_reading_a_configuration_needs_no_torch() -> None:
    program = "import sys, trainer_service.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
