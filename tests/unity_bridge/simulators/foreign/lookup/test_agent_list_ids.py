from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unity_bridge.simulators.foreign.lookup.ids import Maker
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError
from unity_bridge.steps import ActionBatch


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ("foragers:Forager-v0", r"foragers has no environment 'Forager-v0' \(did you mean Foragers-v0\?\)"),
        ("foragers:Old", r"foragers has no environment 'Old' \(did you mean OldForagers\?\)"),
        ("foragers:zzz", "foragers has no environment 'zzz'; it has Foragers, OldForagers, Stacked and more"),
        ("foragers:", "expected an ID after 'foragers:'"),
        ("CartPole-v1", "its action space is not one of several agents: .*one agent are --env=gym:ID"),
        ("lbforagin:Foraging-8x8-2p-3f-v3", r"there is no module lbforagin \(did you mean lbforaging\?\)"),
        ("broken:X", "importing broken raised ZeroDivisionError: division by zero"),
        ("thirsty:X", "thirsty needs water_1234, which is not installed"),
        (
            "Foragin-8x8-v3",
            r"there is no such environment \(did you mean Foraging-8x8-v3\?\); expected module:ID",
        ),
        (
            "CartPol-v1",
            r"there is no such environment \(did you mean CartPole-v1\?\); expected module:ID, or ",
        ),
    ],
)
def test_unknown_environments_are_named_with_the_nearest(
    env: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "thirsty.py").write_text("import water_1234.sea")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SceneError, match=f"^gymma:{env}: {complaint}"):
        open_scene(f"gymma:{env}")


@pytest.mark.parametrize("newer", [False, True])
def test_environments_of_the_older_gym_come_from_its_own_registry(
    newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def make(name: str, **kwargs: Any) -> str:
        asked.append((name, kwargs))
        return "made"

    def newer_make(name: str, disable_env_checker: bool | None = None, **kwargs: Any) -> str:
        return make(name, disable_env_checker=disable_env_checker, **kwargs)

    specs = {"Crowd-v0": SimpleNamespace(entry_point="crowd.envs:Crowd")}
    registry = specs if newer else SimpleNamespace(env_specs=specs)
    gym = SimpleNamespace(envs=SimpleNamespace(registry=registry), make=newer_make if newer else make)
    monkeypatch.setitem(sys.modules, "gym", gym)
    monkeypatch.setitem(sys.modules, "crowd", ModuleType("crowd"))
    assert Maker("gymma:crowd:Crowd-v0", {"clock": True})(rendered=True) == "made"
    expected = {"render_mode": "rgb_array", "disable_env_checker": True} if newer else {}
    assert asked == [("Crowd-v0", {**expected, "clock": True})]
    with pytest.raises(SceneError, match=r"crowd has no environment 'Crowd-v1' \(did you mean Crowd-v0\?\)"):
        Maker("gymma:crowd:Crowd-v1", {})()


def test_football_is_made_its_own_way_and_played_with_an_agent_for_each_player(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def create_environment(**kwargs: Any) -> Any:
        """What the engine's own would return: rows of one array for players, a reward for each, one done."""
        asked.append(kwargs)
        stand_in: Any = importlib.import_module("foragers").Stacked(limit=1)
        stand_in.get_state = lambda to_pickle: {}  # football's own, which is no state of the game
        return stand_in

    football = ModuleType("gfootball.env")
    football.create_environment = create_environment  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gfootball", ModuleType("gfootball"))
    monkeypatch.setitem(sys.modules, "gfootball.env", football)
    players = {"number_of_left_players_agent_controls": 3}
    Maker("gymma:academy_corner", {"representation": "extracted", **players})()
    shaped = {"rewards": "scoring,checkpoints", **players}
    scene = open_scene("gymma:gfootball:academy_corner", env_kwargs=shaped, options={"with_state": True})
    assert asked == [
        {"env_name": "academy_corner", "representation": "extracted", **players},
        {"env_name": "academy_corner", "representation": "simple115v2", **shaped},
    ]
    [batch] = scene.reset(3).values()
    assert batch.observations[1].tolist() == [[0, 0, 3, 0, 1, 3, 0, 2, 3]] * 3, "what all players see"
    choices = ActionBatch(np.zeros((3, 0), np.float32), np.array([[2], [0], [1]], np.int32))
    [batch] = scene.step({"academy_corner?team=0": choices}).values()
    assert batch.rewards.tolist() == [2.5, 1.5, 3.5, 0, 0, 0]
    assert batch.num_terminal == 3
    with pytest.raises(SceneError, match="gymma:academy_corner: how many players are agents"):
        open_scene("gymma:academy_corner")


def test_gym_knows_where_several_agents_belong() -> None:
    with pytest.raises(SceneError, match=r"\(did you mean gymma:Checkers-v0, of ma_gym\?\)$"):
        open_scene("gym:Checkers-v0")


def test_gym_hosts_lists_of_agents_that_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("foragers")
    monkeypatch.setattr("foragers.Foragers.n_agents", 3, raising=False)
    scene = open_scene("gym:Foragers-v0", agents=2)
    assert scene.reset(5)["Foragers-v0?team=0"].group_ids.tolist() == [1, 1, 1, 2, 2, 2]
    with pytest.raises(
        SceneError, match=r"gym:Foragers-v0: it has no --wrap; expected --copies, --with-state"
    ):
        open_scene("gym:Foragers-v0", options={"wrap": ["ClipReward:-1,1"]})


def test_a_list_of_rewards_without_a_number_of_agents_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foragers = importlib.import_module("foragers")
    monkeypatch.setattr(
        foragers.Foragers, "step", lambda self, _: (self._seen(), [1.0] * 3, False, False, {})
    )
    scene = open_scene("gym:foragers:Foragers")
    scene.reset(1)
    choices = ActionBatch(np.zeros((1, 0), np.float32), np.zeros((1, 3), np.int32))
    with pytest.raises(SceneError, match=r"expected a number as reward, got 3 .* attribute n_agents = 3"):
        scene.step({"Foragers?team=0": choices})
