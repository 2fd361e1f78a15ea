"""What an environment says arrives: every kind of observation, action and mask, by every way in.

Each way in plays the probe environments of ``foreign_probes``, whose episodes are known beforehand. A transition is
what an agent saw, which actions were allowed, what it did, earned and saw then, and how its episode ended there.
"""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import foreign_probes as probes
import gymnasium
import numpy as np
import pytest
from foreign_probes import (
    BAD_MASKS,
    CAST_BY_GYMNASIUM,
    CONTENTS,
    CONTROLS,
    MASK_FORMS,
    PLACES,
    TROUBLES,
    Script,
)

from unity_bridge.programs.program_environment import program_environment
from unity_bridge.simulators.objects import opener_of
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.steps import ActionBatch

STEPS = 9
SEED = 2000
COPIES = 2


class WayIn(NamedTuple):
    """A way to open the probe environment."""

    opened: Callable[[dict[str, Any]], Scene]
    agents: int = 1
    """Of a copy."""


def _gym(name: str, **given: Any) -> Callable[[dict[str, Any]], Scene]:
    return lambda script: open_scene(
        f"gym:{name}",
        agents=COPIES,
        env_kwargs={**script, **given.get("kwargs", {})},
        options=given.get("options", {}),
    )


def _several(env: str) -> Callable[[dict[str, Any]], Scene]:
    return lambda script: open_scene(env, env_kwargs=script, options={"copies": COPIES})


def _sent(make: Callable[..., Any], *, as_function: bool) -> Callable[[dict[str, Any]], Scene]:
    def opened(script: dict[str, Any]) -> Scene:
        sent = program_environment((lambda: make(**script)) if as_function else make(**script))
        return opener_of(pickle.loads(sent.content))(sent.env, options={"copies": COPIES})

    return opened


def _hosted(make: Callable[..., Any]) -> Callable[[dict[str, Any]], Scene]:
    def opened(script: dict[str, Any]) -> Scene:
        own = program_environment(make(**script))
        return own.open(own.env, options={"copies": COPIES})

    return opened


WAYS = {
    "id": WayIn(_gym("probes/Single-v0")),
    "class": WayIn(_gym("foreign_probes:Single")),
    "object": WayIn(_sent(probes.Single, as_function=False)),
    "object of this process": WayIn(_hosted(probes.Single)),
    "function": WayIn(_sent(probes.Single, as_function=True)),
    "wrapped": WayIn(_gym("foreign_probes:Single", options={"wrap": ["TimeLimit:1000"]})),
    **{
        f"sync {mode}{' copied' if copy else ''}": WayIn(
            _gym("foreign_probes:vectorized", kwargs={"mode": mode, "copy": copy})
        )
        for mode in ("NEXT_STEP", "SAME_STEP", "DISABLED")
        for copy in (False, True)
    },
    "parallel": WayIn(_several("pettingzoo:probe_parallel"), 2),
    "parallel object": WayIn(_sent(probes.Parallel, as_function=False), 2),
    "in turn": WayIn(_several("pettingzoo:probe_in_turn"), 2),
    "in turn object": WayIn(_sent(probes.InTurn, as_function=True), 2),
    "list": WayIn(_several("gymma:foreign_probes:Listed"), 2),
    "list by gym": WayIn(_gym("foreign_probes:Listed"), 2),
    "list object": WayIn(_sent(probes.Listed, as_function=False), 2),
}
UNLIKE = (
    "class",
    "function",
    "wrapped",
    "sync NEXT_STEP",
    "sync SAME_STEP copied",
    "parallel",
    "in turn",
    "list",
)
"""Ways in that read masks by code of their own; the others share it."""
unlike_ways = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in UNLIKE else pytest.mark.thorough) for way in WAYS]
)
IN_PROCESSES = {
    "async": WayIn(_gym("foreign_probes:Single", options={"vector": "async"})),
    "async own": WayIn(_gym("foreign_probes:vectorized", kwargs={"processes": True})),
    "async DISABLED": WayIn(
        _gym("foreign_probes:vectorized", kwargs={"processes": True, "mode": "DISABLED"})
    ),
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An id of Gymnasium's, and modules as PettingZoo has them."""
    import sys
    from types import SimpleNamespace

    gymnasium.register("probes/Single-v0", entry_point=probes.Single)
    monkeypatch.setitem(sys.modules, "probe_parallel", SimpleNamespace(parallel_env=probes.Parallel))
    monkeypatch.setitem(sys.modules, "probe_in_turn", SimpleNamespace(env=probes.InTurn))
    yield
    gymnasium.registry.pop("probes/Single-v0")


def expected(script: Script, seed: int, agent: int, episode: int, time: int, choice: Any) -> tuple[Any, ...]:
    """The transition from one time to the next."""
    terminated, truncated = script.ends(seed, episode, time + 1)
    content = CONTENTS[script.content]
    return (
        content.shown(script.drawn(seed, episode, time, agent)),
        [*itertools.chain(*script.allowed(seed, episode, time, agent))] if script.mask_form else None,
        script.reward(script.action.meant(*choice), time + 1, agent),
        content.shown(script.drawn(seed, episode, time + 1, agent)),
        "terminated" if terminated else "truncated" if truncated else "",
    )


def lived(scene: Scene, script: Script, steps: int) -> dict[int, list[tuple[Any, ...]]]:
    """The transitions of each agent, in order. Actions are drawn among those that are allowed."""
    [behavior] = scene.behaviors
    names = [sensor.name for sensor in scene.behaviors[behavior].observation_specs]
    rng = np.random.default_rng(5)
    control = script.action
    before: dict[int, tuple[Any, ...]] = {}
    transitions: dict[int, list[tuple[Any, ...]]] = {}
    batch = scene.reset(SEED)[behavior]
    for _ in range(steps):
        continuous, discrete = [], []
        for row, agent in enumerate(batch.agent_ids.tolist()):
            seen = {
                name: as_float(sensor[row]) for name, sensor in zip(names, batch.observations, strict=True)
            }
            if agent in before:
                ending = ["", "terminated", "truncated"][batch.terminated[row] + 2 * batch.truncated[row]]
                saw, allowed, choice = before.pop(agent)
                transitions.setdefault(agent, []).append(
                    (saw, allowed, choice, float(batch.rewards[row]), seen, ending)
                )
            else:
                assert batch.rewards[row] == 0, "an episode begins, there is nothing to earn yet"
            if row >= batch.num_terminal:
                allowed = batch.allowed_actions[row]
                numbers = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], control.continuous)
                parts = np.split(allowed, np.cumsum(control.branches)[:-1]) if control.branches else []
                picks = [int(rng.choice(np.flatnonzero(part))) for part in parts]
                before[agent] = seen, allowed.astype(int).tolist(), (numbers.tolist(), picks)
                continuous.append(numbers)
                discrete.append(picks)
        actions = ActionBatch(
            np.array(continuous, np.float32).reshape(len(continuous), control.continuous),
            np.array(discrete, np.int32).reshape(len(discrete), len(control.branches)),
        )
        assert continuous, "every agent's episode ended at once"
        batch = scene.step({behavior: actions})[behavior]
    scene.close()
    return transitions


def as_float(observation: Any) -> Any:
    """The observation's numbers as float64, whatever the dtype of its sensor."""
    return observation.astype(np.float64)


def check(way: WayIn, script: dict[str, Any], steps: int = STEPS) -> None:
    """Holds every transition against the script."""
    wanted = Script(**script)
    transitions = lived(way.opened(script), wanted, steps)
    assert len(transitions) == COPIES * way.agents
    endings = set()
    for number, lives in transitions.items():
        copy, agent = divmod(number, way.agents)
        episode = time = 0
        assert lives
        for saw, allowed, choice, reward, then, ending in lives:
            told = expected(wanted, (SEED + 1000 * copy), agent, episode, time, choice)
            assert_shown(saw, told[0])
            assert allowed == (told[1] if told[1] is not None else [1] * sum(wanted.action.branches))
            assert reward == pytest.approx(told[2], rel=1e-6)
            assert_shown(then, told[3])
            assert ending == told[4]
            endings.add(ending)
            episode, time = (episode + 1, 0) if ending else (episode, time + 1)
    assert endings == {"", "terminated", "truncated"}


def assert_shown(shown: dict[str, Any], told: dict[str, Any]) -> None:
    # A member with a reserved name gets another, which ends with it.
    names = {member: min((name for name in shown if name.endswith(member)), key=len) for member in told}
    assert {*names.values()} == {*shown}
    for member, want in told.items():
        np.testing.assert_allclose(shown[names[member]], want, rtol=1e-6)


MASKS = [
    (form, place, control)
    for form, (_, controls) in MASK_FORMS.items()
    for place in PLACES
    for control in controls
    if place != "member" or form in ("flat", "bools")  # other forms are no member of one space
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("way", WAYS)
def test_observations_and_ends_arrive_as_they_were_said(way: str, content: str) -> None:
    check(WAYS[way], {"content": content}, 2 * STEPS)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("way", WAYS)
def test_actions_and_rewards_arrive_as_they_were_meant(way: str, control: str) -> None:
    check(WAYS[way], {"control": control}, 2 * STEPS)


@pytest.mark.parametrize("mask", MASKS, ids=" ".join)
@unlike_ways
def test_masks_arrive_from_every_place_in_every_form(way: str, mask: tuple[str, str, str]) -> None:
    form, place, control = mask
    check(WAYS[way], {"mask_form": form, "mask_place": place, "control": control}, 2 * STEPS)


@pytest.mark.parametrize("key", ["action_masks", "avail_actions", "available_actions"])
@pytest.mark.parametrize("place", ["info", "member"])
@unlike_ways
def test_masks_arrive_by_their_other_names(way: str, place: str, key: str) -> None:
    check(WAYS[way], {"mask_form": "flat", "mask_place": place, "mask_key": key}, 2 * STEPS)


@pytest.mark.process
@pytest.mark.parametrize(
    "script",
    [
        {"content": "nested", "control": "dict"},
        {"content": "discrete", "mask_form": "flat", "mask_place": "method"},
    ],
    ids=str,
)
@pytest.mark.parametrize("way", IN_PROCESSES)
def test_copies_in_processes_are_as_those_in_this_one(way: str, script: dict[str, Any]) -> None:
    check(IN_PROCESSES[way], script, 2 * STEPS)


OUTSIDE = [
    (way, trouble)
    for way in WAYS
    for trouble in TROUBLES
    # Gymnasium's own vector environments raise themselves, or round before anybody sees it.
    if not (way.startswith("sync") and trouble in CAST_BY_GYMNASIUM)
]


@pytest.mark.parametrize(("way", "trouble"), OUTSIDE)
def test_observations_outside_their_space_are_refused_by_name(way: str, trouble: str) -> None:
    content, _, complaint = TROUBLES[trouble]
    script = {"content": content, "trouble": trouble}
    with pytest.raises(SceneError, match=f"sensor '.*{complaint}") as caught:
        lived(WAYS[way].opened(script), Script(**script), 2)
    assert str(caught.value).split(":")[0] in ("gym", "pettingzoo", "gymma", "python")


@pytest.mark.parametrize("trouble", BAD_MASKS)
@pytest.mark.parametrize("way", WAYS)
def test_masks_that_cannot_be_respected_are_told_once(way: str, trouble: str, caplog: Any) -> None:
    script = {"trouble": trouble}
    transitions = lived(WAYS[way].opened(script), Script(**script), STEPS)
    assert all(allowed == [1, 1, 1] for lives in transitions.values() for _, allowed, *_ in lives)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert re.search(BAD_MASKS[trouble][1], told[0])
    assert "mask" in told[0]
