"""Properties of all scenes with groups: ids, groups and ends, seeds, experts, options, pictures, the wire."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge, BridgeSettings, Tick
from unity_bridge.simulators.__main__ import main
from unity_bridge.simulators.group_scenes.registry import GROUP_SCENES, OPTIONS
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Demonstrator, Scene, SceneError, Steps, flag_of
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch, StepBatch

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("spread", {}),
    ("spread", {"agents_per_copy": 5, "steps": 7, "continuous": True}),
    ("switch2", {}),
    ("switch3", {"clock": True, "steps": 40}),
    ("switch4", {"full_view": True}),
    ("pushblock", {}),
    ("pushblock", {"agents_per_copy": 7, "respawn": 3, "steps": 25}),
    ("goal", {}),
    ("goal", {"agents_per_copy": 5}),
    ("duel", {}),
    ("duel", {"agents_per_copy": 3, "continuous": True, "steps": 25}),
]
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS)


def open_(name: str, options: Mapping[str, Any], copies: int = 6) -> Scene:
    return open_scene(f"sim:{name}", options={"copies": copies, **options})


def random_actions(scene: Scene, steps: Steps, rng: np.random.Generator) -> dict[str, ActionBatch]:
    """A choice at random for every row that waits."""
    return {
        behavior: draw(scene.behaviors[behavior].action_spec, len(batch) - batch.num_terminal, rng)
        for behavior, batch in steps.items()
    }


def draw(spec: ActionSpec, rows: int, rng: np.random.Generator) -> ActionBatch:
    numbers = rng.uniform(-1, 1, (rows, spec.continuous_size)).astype(np.float32)
    branches = [rng.integers(size, size=rows) for size in spec.discrete_branches]
    return ActionBatch(
        numbers, np.stack(branches, axis=1).astype(np.int32) if branches else np.zeros((rows, 0), np.int32)
    )


def games(scene: Scene, steps: int, seed: int = 0) -> Iterator[Steps]:
    rng = np.random.default_rng(seed)
    batches = scene.reset(seed)
    yield batches
    for _ in range(steps):
        batches = scene.step(random_actions(scene, batches, rng))
        yield batches


def members(batch: StepBatch, rows: slice) -> dict[int, list[int]]:
    """The agents of each group in some rows."""
    found: dict[int, list[int]] = defaultdict(list)
    for group, agent in zip(batch.group_ids[rows].tolist(), batch.agent_ids[rows].tolist(), strict=True):
        found[group].append(agent)
    return found


@every_variant
def test_a_scene_describes_what_its_rows_hold(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    steps = scene.reset(0)
    assert set(steps) == set(scene.behaviors)
    for behavior, spec in scene.behaviors.items():
        batch = steps[behavior]
        assert [seen.shape[1:] for seen in batch.observations] == [
            each.shape for each in spec.observation_specs
        ]
        assert {seen.dtype for seen in batch.observations} == {np.dtype(np.float32)}
        assert batch.allowed_actions.shape[1] == spec.action_spec.mask_size
        assert batch.rewards.dtype == batch.group_rewards.dtype == np.float32


@every_variant
def test_ids_of_agents_and_groups_never_change(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    groups: dict[int, int] = {}
    for steps in games(scene, 500):
        for batch in steps.values():
            for agent, group in zip(batch.agent_ids.tolist(), batch.group_ids.tolist(), strict=True):
                assert groups.setdefault(agent, group) == group
                assert group >= 1
    per_copy = len(set(groups)) // 6
    assert sorted(groups) == list(range(6 * per_copy))
    sides = 2 if name == "duel" else 1
    assert len(set(groups.values())) == 6 * sides


@every_variant
def test_acting_agents_end_or_wait_and_groups_end_whole(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    before: dict[str, dict[int, list[int]]] = {}
    ends = early = 0
    for steps in games(scene, 500, seed=1):
        for behavior, batch in steps.items():
            ended = members(batch, slice(batch.num_terminal))
            waiting = members(batch, slice(batch.num_terminal, None))
            assert set(waiting) == set(members(batch, slice(None)))  # no group is ever without agents
            for group, acted in before.get(behavior, {}).items():
                assert set(ended[group]) <= set(acted)
                assert len(set(ended[group])) == len(ended[group])
                assert set(acted) <= set(ended[group]) | set(waiting[group])
                whole = sorted(ended[group]) == sorted(acted)
                ends += whole
                early += bool(ended[group]) and not whole
                # An agent that ended while its group lives on has no row until it begins anew.
                gone = [] if whole else ended[group]
                assert not set(gone) & set(waiting[group])
            before[behavior] = waiting
    assert ends >= 6
    assert bool(early) == (name.startswith("switch") or name == "pushblock")


@every_variant
def test_new_episodes_begin_with_zero_rewards(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    known: dict[str, set[int]] = {}
    for steps in games(scene, 80, seed=2):
        for behavior, batch in steps.items():
            ended = set(batch.agent_ids[: batch.num_terminal].tolist())
            goes_on = known.get(behavior, set()) - ended
            waiting = batch.agent_ids[batch.num_terminal :].tolist()
            new = batch.num_terminal + np.array([agent not in goes_on for agent in waiting]).nonzero()[0]
            assert not batch.rewards[new].any()
            assert not batch.group_rewards[new].any()
            known[behavior] = set(waiting)


def digest(steps: Steps) -> list[Any]:
    return [
        (behavior, *(column.tolist() for column in (batch.agent_ids, batch.rewards, *batch.observations)))
        for behavior, batch in sorted(steps.items())
    ]


@every_variant
def test_a_seed_makes_everything_reproducible(name: str, options: dict[str, Any]) -> None:
    def story(seed: int) -> list[Any]:
        scene = open_(name, options)
        rng = np.random.default_rng(9)
        steps = scene.reset(seed)
        received = [digest(steps)]
        for _ in range(60):
            steps = scene.step(random_actions(scene, steps, rng))
            received.append(digest(steps))
        return received

    first = story(4)
    assert first == story(4)
    # There is no chance in Switch.
    assert (story(5) == first) == name.startswith("switch")


@every_variant
def test_a_reset_in_mid_episode_begins_anew_and_ends_nothing(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    *_, last = games(scene, 4)
    assert not any(batch.num_terminal for batch in last.values())
    again = scene.reset(3)
    assert digest(again) == digest(open_(name, options).reset(3))
    assert not any(batch.num_terminal for batch in again.values())


@every_variant
def test_asking_an_expert_changes_nothing(name: str, options: dict[str, Any]) -> None:
    scene, twin = open_(name, options), open_(name, options)
    assert isinstance(scene, Demonstrator)
    assert isinstance(twin, Demonstrator)
    steps, same = scene.reset(1), twin.reset(1)
    for _ in range(60):
        shown = [scene.expert() for _ in range(3)][-1]
        for behavior, batch in shown.items():
            spec = scene.behaviors[behavior].action_spec
            assert batch.discrete.shape == (len(batch), spec.discrete_size)
            assert batch.continuous.shape == (len(batch), spec.continuous_size)
            assert len(batch) == len(steps[behavior]) - steps[behavior].num_terminal
            assert (np.abs(batch.continuous) <= 1).all()
            assert (batch.discrete >= 0).all()
            assert (batch.discrete < np.array(spec.discrete_branches, np.int64)).all()
        steps, same = scene.step(shown), twin.step(twin.expert())
        assert digest(steps) == digest(same)


@every_variant
def test_pictures_have_one_size_and_change(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options, copies=9)
    pictures = []
    for _ in games(scene, 5):
        pictures.append(scene.render())
    assert {(picture.shape, picture.dtype) for picture in pictures} == {
        (pictures[0].shape, np.dtype(np.uint8))
    }
    assert pictures[0].shape[2] == 3
    assert not np.array_equal(pictures[0], pictures[-1])


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(name, options, marks=pytest.mark.thorough if options else ())
        for name, options in VARIANTS
    ],
)
def test_steps_arrive_unchanged_over_the_wire(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    twin = open_(name, options)
    program = [sys.executable, "-m", "unity_bridge.simulators", f"sim:{name}", "--seed", "5", "--copies", "6"]
    for option, value in options.items():
        program += [flag_of(option)] if value is True else [flag_of(option), str(value)]
    command = Command(env=f"sim:{name}", executable=tuple(program))
    rng, steps, exchanges = np.random.default_rng(0), twin.reset(5), 0
    with Bridge(BridgeSettings(seed=1, run_logs=tmp_path, timeout_wait_s=30)) as bridge:
        bridge.launch(command)
        while exchanges < 60:
            for tick in bridge.receive(30.0):
                assert isinstance(tick, Tick), tick
                require_same(tick.steps, steps)
                actions = random_actions(twin, steps, rng)
                steps = twin.step(actions)
                bridge.reply(tick.simulator, actions)
                exchanges += 1


def require_same(received: Steps, steps: Steps) -> None:
    assert set(received) == set(steps)
    for behavior, batch in steps.items():
        got = received[behavior]
        for column in ("agent_ids", "group_ids", "rewards", "group_rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(got, column), getattr(batch, column), column)
        np.testing.assert_array_equal(got.observations[0], batch.observations[0])


@pytest.mark.parametrize("name", GROUP_SCENES)
def test_default_options_are_those_of_the_scene_class(name: str) -> None:
    scene = GROUP_SCENES[name]
    assert set(scene.options) <= set(OPTIONS)
    assert digest(scene.make().reset(0)) == digest(open_scene(f"sim:{name}").reset(0))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sim:spread --agents 4", "sim:spread: --agents is for scenes without teams; expected --copies, "),
        ("sim:spread --clock", "sim:spread: it has no --clock; expected --copies, --agents-per-copy, "),
        (
            "sim:switch2 --agents-per-copy 3",
            "sim:switch2: it has no --agents-per-copy; expected --copies, --steps",
        ),
        ("sim:pushblock --agents-per-copy 2", "sim:pushblock: --agents-per-copy: expected 3 agents or more"),
        ("sim:basic --copies 3", "sim:basic: --copies is for scenes with teams only: sim:spread, sim:duel"),
        ("gym:CartPole-v1 --steps 9", "gym:CartPole-v1: it has no --steps; expected --wrap, --vector"),
        ("sim:spread --parameter x=3", "sim:spread: no environment parameter 'x'; it has none"),
        ("sim:spread --pictures png", "sim:spread: --pictures is for scenes with a camera only"),
        ("sim:sprad", "(did you mean 'sim:spread'?)"),
    ],
)
def test_what_a_scene_has_no_use_for_is_refused(line: str, complaint: str, capsys: Any) -> None:
    assert main([*line.split(), "--mlagents-port", "1", "--connect-timeout", "0"]) == 2
    assert complaint in capsys.readouterr().err


def test_an_option_that_no_scene_has_is_an_error() -> None:
    with pytest.raises(SceneError, match="sim:spread: it has no --size; expected --copies"):
        open_scene("sim:spread", options={"size": 3})


def test_help_tells_of_scenes_and_their_options(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "(--copies 16, --agents-per-copy 3, --steps 25)" in out
    assert all(f"sim:{name}" in out for name in GROUP_SCENES)
    assert all(flag_of(option) in out for option in OPTIONS)
    assert "--respawn N let agents that died come back after so many decisions (sim:pushblock)" in out
