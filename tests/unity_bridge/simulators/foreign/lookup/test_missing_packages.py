"""Environments whose packages are not installed, each with the command that installs them."""

from __future__ import annotations

import sys

import gymnasium
import pytest

from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError

SPREAD = "pettingzoo:mpe2.simple_spread_v3"
OURS = r'is not installed; .*pip install .*"\.\[{}\]"'


class Without:
    """An importer that knows one package to be absent."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("env", "package", "said"),
    [
        ("gym:CartPole-v1", "gymnasium", "Gymnasium " + OURS.format("gym")),
        (SPREAD, "gymnasium", "Gymnasium " + OURS.format("pettingzoo")),
        (SPREAD, "pettingzoo", "pettingzoo " + OURS.format("pettingzoo")),
        (SPREAD, "mpe2", "mpe2 " + OURS.format("pettingzoo")),
        ("gymma:Foraging-8x8-2p-3f-v3", "lbforaging", "lbforaging " + OURS.format("gymma")),
        ("gymma:rware:rware-tiny-4ag-v2", "rware", "rware " + OURS.format("gymma")),
        ("gymma:Checkers-v0", "ma_gym", "ma_gym .*pip install --no-build-isolation --no-deps gym"),
        ("gymma:smaclite/2s3z-v0", "smaclite", "smaclite .*pip install git"),
        ("gymma:academy_3_vs_1_with_keeper", "gfootball", "gfootball .*follow https://"),
    ],
)
def test_missing_packages_are_told_with_their_install_command(
    env: str, package: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (
        () if env.startswith("gymma") else ("unity_bridge.simulators.foreign.",)
    )  # imported at the first use
    for name in list(sys.modules):
        if name.partition(".")[0] == package or name.startswith(ours):
            monkeypatch.delitem(sys.modules, name)
    for name, spec in list(gymnasium.registry.items()):
        if str(spec.entry_point).startswith(package):  # another test may have imported it
            monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setattr(sys, "meta_path", [Without(package), *sys.meta_path])
    with pytest.raises(SceneError, match=f"^{env}: {said}"):
        open_scene(env)
