from __future__ import annotations

from typing import Any

import pytest
from foreign_scenes import open_gym

from unity_bridge.simulators.scene import SceneError


def opened(name: str, **kwargs: Any):
    return open_gym(name, None, kwargs, {}, rendered=False)


def test_a_function_or_class_of_a_module_makes_environments(act) -> None:
    for name in ("lap", "Lap"):
        scene = opened(f"gym_lab:{name}", bonus=0.5)
        assert list(scene.behaviors) == [f"{name}?team=0"]
        scene.reset(0)
        assert scene.step(act(f"{name}?team=0", discrete=[[1]]))[f"{name}?team=0"].rewards[0] == 6.5


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_lab:Env-v0", "there is no module no_such_lab$"),
        ("gym_lab:lapp", r"gym_lab has no environment 'lapp' \(did you mean laps?\?\)$"),
        ("gym_lab:xyzzy", r"gym_lab has no environment 'xyzzy'; it has Lap, [A-Z].* and more$"),
        ("gym_lab:failing", r"make\(\) raised RuntimeError: no track$"),
        ("gym_lab:nothing", r"make\(\) raised TypeError: nothing\(\) missing 1 required positional argument"),
        (
            "types:SimpleNamespace",
            r"expected a gymnasium.Env or a gymnasium.vector.VectorEnv to be returned, got",
        ),
        ("numbered_lives:no", "numbered_lives has no environment 'no'"),
        ("CartPol-v1", r"make\(\) raised .*NameNotFound.*CartPole"),
    ],
)
def test_what_cannot_be_made_is_named(name: str, complaint: str) -> None:
    with pytest.raises(SceneError, match=f"^gym:{name}: {complaint}"):
        opened(name)
