from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (
            "mpe2.simple_spread_v2",
            r"there is no module mpe2\.simple_spread_v2 \(did you mean mpe2\.simple_spread_v3\?\)",
        ),
        ("no_such_package.thing", r"there is no module no_such_package\.thing$"),
        (
            "tictactoe_v3",
            r"there is no module tictactoe_v3 \(did you mean pettingzoo\.classic\.tictactoe_v3\?\)",
        ),
        ("mpe2.", r"there is no module mpe2\.$"),
        ("..mpe2", "importing ..mpe2 raised TypeError: "),
        ("json", "no PettingZoo module: expected a function parallel_env or env in it$"),
        ("in_turn", "it does not say which possible_agents it has$"),
        (
            "classic.tictactoe_v4",
            r"there is no module pettingzoo\.classic\.tictactoe_v4 \(did you mean pettingzoo\..*_v3\?",
        ),
        ("nobody", "it does not say which possible_agents it has$"),
        ("broken", "importing broken raised ZeroDivisionError: division by zero$"),
        ("thirsty", "thirsty needs water_1234, which is not installed$"),
    ],
)
def test_module_without_environment_is_refused_in_one_line(
    module: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in_turn.py").write_text("class env:\n    metadata = {'render_modes': []}\n")
    (tmp_path / "nobody.py").write_text("class parallel_env:\n    metadata = {}\n")
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "thirsty.py").write_text("import water_1234.sea")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SceneError, match=rf"^pettingzoo:{module}: {complaint}"):
        open_scene(f"pettingzoo:{module}")


@pytest.mark.parametrize(
    ("absent", "complaint"),
    [
        ("pettingzoo", "pettingzoo is not installed"),
        ("gymnasium", "Gymnasium is not installed"),
        ("mpe2", "mpe2 is not installed"),
    ],
)
def test_missing_packages_are_reported_with_their_install_command(
    absent: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = "unity_bridge.simulators.foreign."
    for name in list(sys.modules):
        if name.partition(".")[0] == absent or name.startswith(ours):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without(absent), *sys.meta_path])
    with pytest.raises(SceneError) as caught:
        open_scene("pettingzoo:mpe2.simple_spread_v3")
    assert f"pettingzoo:mpe2.simple_spread_v3: {complaint}; run: pip install" in str(caught.value)
    assert '".[pettingzoo]"' in str(caught.value)


class Without:
    """An importer that knows one package to be absent."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
