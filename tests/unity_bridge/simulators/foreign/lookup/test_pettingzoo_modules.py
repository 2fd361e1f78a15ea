from __future__ import annotations

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
