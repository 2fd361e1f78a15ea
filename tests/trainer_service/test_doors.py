"""Every door by which an environment, a data set or a policy comes in, and the traps that each must know.

A trap is an environment that does something awkward, and what is to come of it. Each door that the trap concerns is
entered with it, in this process. Where one does not concern a door, the table says why.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import foreign_probes as probes
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation

import trainer_service
from trainer_service.cli import main
from trainer_service.commands.common.environments import environment_for
from trainer_service.commands.parser import build_parser
from trainer_service.errors import UserError
from unity_bridge.demonstrations import DemonstrationFile
from unity_bridge.errors import BridgeError
from unity_bridge.programs.executables import bundled_command
from unity_bridge.programs.goal_environment import open_goal_environment
from unity_bridge.simulators.foreign.environment import copied
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.schemes import SCHEMES
from unity_bridge.throttled_logger import ThrottledLogger

Make = Callable[..., Any]

SETTINGS = {
    "trainer_type": "ppo",
    "max_steps": 12,
    "summary_freq": 12,
    "time_horizon": 4,
    "hyperparameters": {"batch_size": 4, "buffer_size": 8},
    "network_settings": {"hidden_units": 4, "num_layers": 1},
}


@dataclass(frozen=True)
class Trap:
    """An environment that does something awkward, in the form of each library."""

    script: Mapping[str, Any]
    says: str = ""
    """A pattern of what the user is told, by an error or the log; empty for nothing at all."""
    around: Make = lambda env: env
    """What is put around a single environment."""
    shares: bool = False
    """Whether a function returns one environment again and again."""

    def factory(self, kind: Make = probes.Single) -> Make:
        """A function that makes the environment."""
        around = self.around if kind in (probes.Single, Goal) else (lambda env: env)
        made: list[Any] = []

        def make() -> Any:
            if not (self.shares and made):
                made.append(around(kind(**self.script)))
            return made[-1]

        return make


TRAPS = {
    # The probes write into every array that they have returned, and take only members as their space makes them.
    "arrays are written to again": Trap({"content": "matrix"}),
    "an action of several parts": Trap({"content": "matrix", "control": "dict"}),
    "a method masks": Trap({"content": "matrix", "mask_form": "flat", "mask_place": "method"}),
    "a mask among observations": Trap({"content": "matrix", "mask_form": "flat", "mask_place": "member"}),
    "one environment for all": Trap(
        {"content": "matrix"}, "returned the same environment twice", shares=True
    ),
    "a whole number out of bounds": Trap(
        {"content": "matrix", "trouble": "whole above"}, "10 is outside its space"
    ),
    "a number that is not finite": Trap(
        {"content": "box", "trouble": "not finite"}, "expected (a finite number|finite numbers), got nan"
    ),
    "a reserved name": Trap({"content": "reserved"}),
    "episodes without an end": Trap({"content": "matrix", "trouble": "endless"}),
    "statistics that nobody saves": Trap(
        {"content": "box"}, "NormalizeObservation: its statistics", around=NormalizeObservation
    ),
}


Sensors = list[str]


@dataclass(frozen=True)
class Door:
    """A way in."""

    enter: Callable[[Trap], Sensors | None]
    """Returns the sensors of the behavior, where they can be seen."""
    spared: Mapping[str, str] = field(default_factory=dict)
    """Why traps do not concern it."""


LIMIT = {"max_episode_steps": 5, "episodes": 3}
COPIES = ["--copies", "2"]


def _played(env: Any, env_args: Any = COPIES) -> Sensors:
    """Random actions in an environment, and its sensors."""
    trainer_service.play(env, "random", env_args=env_args, **LIMIT)
    given = environment_for(env, env_args=env_args)
    if given.given is None:
        assert given.env_path is not None
        scene = open_scene(given.env_path)
    else:
        scene = given.given.open(given.given.env)
    [spec, *_] = scene.behaviors.values()
    scene.close()
    return _sensors(spec)


def _sensors(spec: Any) -> Sensors:
    return [sensor.name for sensor in spec.observation_specs]


def _in_module(name: str, **made: Any) -> None:
    sys.modules[name] = SimpleNamespace(**made)  # type: ignore[assignment]


def _gym_id(trap: Trap) -> Sensors:
    gymnasium.register("doors/Probe-v0", entry_point=trap.factory())
    try:
        return _played("gym:doors/Probe-v0", ["--agents", "2"])
    finally:
        gymnasium.registry.pop("doors/Probe-v0")


def _named_function(trap: Trap) -> Sensors:
    _in_module("doors_probe", make=trap.factory())
    return _played("gym:doors_probe:make", ["--agents", "2"])


def _named_class(trap: Trap) -> Sensors:
    script = {**trap.script}

    class Named(probes.Single):
        def __init__(self) -> None:
            super().__init__(**script)

    return _played(Named)


def _file(trap: Trap) -> Sensors:
    _in_module("doors_probe", make=trap.factory())
    Path("doors.py").write_text("from doors_probe import make")
    return _played("doors.py:make")


def _vector(trap: Trap, kind: Any = SyncVectorEnv) -> Sensors:
    make = trap.factory()
    return _played(lambda num_envs=2: kind([make] * num_envs), ["--agents", "2"])


def _parallel(trap: Trap) -> Sensors:
    _in_module("doors_parallel", parallel_env=trap.factory(probes.Parallel))
    return _played("pettingzoo:doors_parallel")


def _in_turn(trap: Trap) -> Sensors:
    _in_module("doors_in_turn", env=trap.factory(probes.InTurn))
    return _played("pettingzoo:doors_in_turn")


def _list(trap: Trap) -> Sensors:
    _in_module("doors_list", make=trap.factory(probes.Listed))
    return _played("gymma:doors_list:make")


@cache
def _trained(script: tuple[tuple[str, Any], ...]) -> Path:
    """The folder of a run on an environment that does nothing awkward."""
    folder = Path(_RUNS.name).absolute()
    run_id = "-".join(str(value) for _, value in script)
    make = Trap(dict(script)).factory()
    return trainer_service.train(SETTINGS, make, run_id=run_id, results_dir=folder, verbose=0).folder


_RUNS = tempfile.TemporaryDirectory()


def _run(trap: Trap) -> Path:
    return _trained(tuple((name, value) for name, value in trap.script.items() if name != "trouble"))


class Watch(trainer_service.Callback):
    """The sensors of a run's behaviors."""

    found: Sensors | None = None

    def on_run_end(self, run: Any) -> None:
        [behavior] = run.behaviors.values()
        self.found = _sensors(behavior.spec)


def _learn(trap: Trap, settings: Mapping[str, Any] = {}, env_args: Any = COPIES, **more: Any) -> Any:
    watch = Watch()
    trainer_service.train(
        {**SETTINGS, **settings},
        trap.factory(),
        env_args=env_args,
        callbacks=[watch],
        run_id="door",
        force=True,
        verbose=1,
        **more,
    )
    return watch.found


def _evaluation_in_a_run(trap: Trap) -> Any:
    return _learn(
        trap, {"evaluation": {"every_steps": 6, "episodes": 1, "max_episode_steps": 5}}, env_args=[]
    )


def _workers(trap: Trap) -> Any:
    return _learn(trap, env_args=[], num_envs=2, isolate=False)


def _suggest(trap: Trap) -> None:
    trainer_service.suggest(trap.factory(), env_args=COPIES)


def _evaluate(trap: Trap) -> None:
    trainer_service.evaluate(_run(trap), trap.factory(), env_args=COPIES, **LIMIT)


def _push(trap: Trap) -> None:
    trainer_service.push_to_hub(
        _run(trap), "me/card", env=trap.factory(), env_args=COPIES, to="card", **LIMIT
    )


def _command(*line: str) -> None:
    """Runs a command, which has said why if it fails."""
    if main(line) != 0:
        raise UserError("refused")


def _record_demo(trap: Trap) -> Sensors:
    _in_module("doors_probe", make=trap.factory())
    Path("doors.py").write_text("from doors_probe import make")
    line = ["record-demo", "doors.py:make", f"--policy={_run(trap)}", "--episodes=3", "--max-episode-steps=5"]
    _command(*line, "-o", "door.demo", "--env-args", *COPIES)
    return _sensors(DemonstrationFile(Path("door.demo")).spec)


def _clone(trap: Trap) -> Any:
    """What one door has recorded, another one reads."""
    _record_demo(trap)
    trainer_service.clone("door.demo", SETTINGS, epochs=1, run_id="clone", force=True)


def _wrapped(trap: Trap) -> None:
    """A loop as users write it."""
    env = trap.factory()()
    agent = trainer_service.load_policy(_run(trap)).wrap(env)
    seen, info = env.reset(seed=1)
    for _ in range(6):
        action, _ = agent.predict(seen, deterministic=False, action_masks=info.get("action_mask"))
        seen, _, *over, info = env.step(action)
        if any(over):
            seen, info = env.reset()


def _wrapped_vector(trap: Trap) -> None:
    env = SyncVectorEnv([trap.factory()] * 2)
    agent = trainer_service.load_policy(_run(trap)).wrap(env)
    seen, _ = env.reset(seed=1)
    for _ in range(6):
        seen, *_ = env.step(agent.predict(seen, deterministic=False)[0])


def _wrapped_pettingzoo(trap: Trap) -> None:
    env = trap.factory(probes.Parallel)()
    agents = trainer_service.load_policy(_run(trap)).wrap(env)
    seen, infos = env.reset(seed=1)
    for _ in range(6):
        seen, _, _, _, infos = env.step(agents.act(seen, infos, deterministic=False))
        if not env.agents:
            seen, infos = env.reset()
            agents.reset()


class Goal(probes.Single):
    """A goal environment with the traps of the others."""

    def __init__(self, **script: Any) -> None:
        super().__init__(**script)
        goal, own = spaces.Box(-10, 10, (1,), np.float64), self.observation_space
        members = own.spaces if isinstance(own, spaces.Dict) else {"observation": own}
        self.observation_space = spaces.Dict({**members, "achieved_goal": goal, "desired_goal": goal})
        self.core.script.__dict__["reward"] = lambda numbers, time, agent: 1.0

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.ones(np.shape(achieved)[:-1])

    def reset(self, **given: Any) -> Any:
        seen, info = super().reset(**given)
        return self._with_goals(seen), info

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        return self._with_goals(seen), *rest

    def _with_goals(self, seen: Any) -> Any:
        goals = {"achieved_goal": np.zeros(1), "desired_goal": np.zeros(1)}
        return {**(seen if isinstance(seen, dict) else {"observation": seen}), **self.core.hand_out(goals)}


def _goal_task(trap: Trap) -> None:
    given = environment_for(trap.factory(Goal), env_args=COPIES)
    command = bundled_command(given.given.env, given.arguments(()), given.given)
    task = open_goal_environment(command)
    try:
        other = open_goal_environment(command)  # of another run in this process
        other.close()
    finally:
        task.close()


def _side_by_side(samples: list[Any]) -> Any:
    if isinstance(samples[0], dict):
        return {key: _side_by_side([each[key] for each in samples]) for key in samples[0]}
    return np.array(samples)


def _minari(trap: Trap) -> Sensors:
    """A data set of what the environment has returned."""
    minari = pytest.importorskip("minari", reason="the extra [minari] is not installed")
    pytest.importorskip("h5py", reason="the extra [minari] is not installed")
    from minari.data_collector import EpisodeBuffer

    env = trap.factory()()
    seen = [copied(env.reset(seed=1)[0])]
    actions = [env.action_space.sample() for _ in range(2)]
    script = env.unwrapped.core.script
    for _ in actions:
        env.unwrapped.core.time += 1
        seen.append(copied(env.unwrapped.core.observation()))
    episode = EpisodeBuffer(
        id=0,
        observations=_side_by_side(seen),
        actions=_side_by_side(actions),
        rewards=[1.0] * 2,
        terminations=[False] * 2,
        truncations=[False, True],
        infos={},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            "door-v0", [episode], observation_space=script.observation_space(), action_space=env.action_space
        )
    _command("demo-convert", "minari:door-v0", "door.demo")
    return _sensors(DemonstrationFile(Path("door.demo")).spec)


OF_ONE = "Gymnasium's wrappers are put around single agents"
COPIED = "each copy of an object is a new one"
BY_THE_USER = "the loop is the user's own"

DOORS: Mapping[str, Door] = {
    "gym id": Door(_gym_id),
    "function by name": Door(_named_function),
    "file": Door(_file),
    "function": Door(lambda trap: _played(trap.factory())),
    "class": Door(
        _named_class,
        {
            "one environment for all": "a class makes a new one each time",
            "statistics that nobody saves": "a class is not wrapped",
        },
    ),
    "object": Door(lambda trap: _played(trap.factory()()), {"one environment for all": COPIED}),
    "vector environment": Door(_vector),
    "copies in processes": Door(
        partial(_vector, kind=AsyncVectorEnv),
        {"one environment for all": "each process makes one of its own"},
    ),
    "vector object": Door(lambda trap: _played(SyncVectorEnv([trap.factory()] * 2), [])),
    "list of agents": Door(_list, {"statistics that nobody saves": OF_ONE}),
    "list object": Door(
        lambda trap: _played(trap.factory(probes.Listed)()),
        {"statistics that nobody saves": OF_ONE, "one environment for all": COPIED},
    ),
    "parallel": Door(_parallel, {"statistics that nobody saves": OF_ONE}),
    "parallel object": Door(
        lambda trap: _played(trap.factory(probes.Parallel)()),
        {"statistics that nobody saves": OF_ONE, "one environment for all": COPIED},
    ),
    "in turn": Door(_in_turn, {"statistics that nobody saves": OF_ONE}),
    "learn": Door(_learn),
    "workers": Door(_workers),
    "evaluation in a run": Door(_evaluation_in_a_run),
    "suggest": Door(_suggest),
    "evaluate": Door(_evaluate),
    "push": Door(_push),
    "record-demo": Door(_record_demo),
    "clone": Door(_clone),
    "wrap": Door(
        _wrapped,
        {"one environment for all": BY_THE_USER, "episodes without an end": BY_THE_USER},
    ),
    "wrap of a vector environment": Door(
        _wrapped_vector,
        {"one environment for all": BY_THE_USER, "episodes without an end": BY_THE_USER},
    ),
    "wrap of PettingZoo": Door(
        _wrapped_pettingzoo,
        {
            "one environment for all": BY_THE_USER,
            "episodes without an end": BY_THE_USER,
            "statistics that nobody saves": OF_ONE,
        },
    ),
    "goal task": Door(
        _goal_task,
        {
            "a whole number out of bounds": "it reads goals alone",
            "a number that is not finite": "it reads goals alone",
            "statistics that nobody saves": "Gymnasium's wrapper takes no Dict, which holds the goals",
        },
    ),
    "Minari": Door(
        _minari,
        {
            "arrays are written to again": "a file's arrays are its own",
            "a method masks": "recordings hold no masks",
            "one environment for all": "there is no environment",
            "episodes without an end": "a file ends",
            "statistics that nobody saves": "there is no environment",
        },
    ),
}

SAME = "it enters by the door of"
ENTRANCES: Mapping[str, str] = {
    # Commands.
    "learn": "learn",
    "suggest": "suggest",
    "evaluate": "evaluate",
    "play": "function",
    "record-demo": "record-demo",
    "demo-convert": "Minari",
    "clone": "clone",
    "push": "push",
    "sweep": f"{SAME} learn, in a process for each trial",
    "simulate": f"{SAME} play, for a trainer elsewhere",
    "relay": f"{SAME} learn: it opens simulators for a trainer elsewhere",
    "watch": f"{SAME} play: its page shows what that would play",
    "doctor": f"{SAME} learn: it starts the simulator and exchanges a message",
    "demo": "its scene is ours",
    "demo-info": f"{SAME} clone: it reads recordings",
    "export": "a checkpoint's own spaces, no environment",
    "load": "a checkpoint's own spaces, no environment",
    "serve": "a checkpoint's own spaces, no environment",
    "import-checkpoint": "a checkpoint's own spaces, no environment",
    "compare": "it reads metrics",
    "report": "it reads metrics",
    "status": "it reads a run's files",
    "check": "it reads configurations",
    "configs": "it lists our configurations",
    "schema": "it prints our schema",
    "alias": "it names a command",
    # Functions.
    "train": "learn",
    "train_seeds": f"{SAME} learn, in a process for each seed",
    "record": f"{SAME} evaluate, and films it",
    "load_policy": "wrap",
    "Policy": "wrap",
    "GymPolicy": "wrap",
    "PettingZooPolicy": "wrap of PettingZoo",
    "push_to_hub": "push",
    "load_from_hub": "a checkpoint's own spaces, no environment",
    "compare_tasks": "it reads metrics",
    "load_metrics": "it reads metrics",
    "load_run_options": "it reads a configuration",
    "parse_run_options": "it reads a configuration",
    # Where the two above lead.
    "evaluation in a run": "evaluation in a run",
    "hindsight replay": "goal task",
    "num_envs": "workers",
}
"""The door of each command and function, or why it has none of its own."""


def _entrances() -> set[str]:
    """All commands, all public functions, and the policies."""
    [commands] = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    public = {name: getattr(trainer_service, name) for name in trainer_service.__all__}
    functions = {name for name, made in public.items() if inspect.isfunction(made) or name.endswith("Policy")}
    return {*commands.choices, *functions}


def test_every_command_and_function_is_in_the_table() -> None:
    assert _entrances() - ENTRANCES.keys() == set()
    for name, door in ENTRANCES.items():
        assert door in DOORS or door.count(" ") > 1, f"{name}: say which door, or why none"


def test_the_table_says_why_a_trap_does_not_concern_a_door() -> None:
    for door in DOORS.values():
        assert door.spared.keys() <= TRAPS.keys()
        assert all(why.count(" ") > 1 for why in door.spared.values())


STARTS_PROCESSES = ("copies in processes", "Minari")
CELLS = [
    pytest.param(door, trap, marks=[pytest.mark.process] if door in STARTS_PROCESSES else [])
    for door in DOORS
    for trap in TRAPS
    if trap not in DOORS[door].spared
]


@pytest.mark.parametrize(("door", "trap"), CELLS)
def test_every_door_knows_every_trap(door: str, trap: str, enter: Callable[[Door, Trap], None]) -> None:
    enter(DOORS[door], TRAPS[trap])


@pytest.fixture
def enter(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: Any
) -> Callable[[Door, Trap], None]:
    """Enters a door with a trap, and holds what the user is told against what is to be told."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(workplace / "minari"))
    # A warning is not left out because another cell has had it.
    fresh = ThrottledLogger(logging.getLogger("unity_bridge.codec.unusable_values"))
    monkeypatch.setattr("unity_bridge.codec.unusable_values._throttled", fresh)
    # In this process, as every other one.
    monkeypatch.setitem(SCHEMES, "gymma", replace(SCHEMES["gymma"], is_isolated=False))  # type: ignore[call-overload]

    def enter(door: Door, trap: Trap) -> None:
        error, entered = "", None
        with caplog.at_level(logging.WARNING):
            try:
                entered = door.enter(trap)
            except (UserError, BridgeError, ValueError) as refusal:
                error = str(refusal)
        told = error + caplog.text + capsys.readouterr().err
        if trap.says:
            assert re.search(trap.says, told)
            return
        assert not error
        assert "failed" not in told
        assert "outside" not in told
        if entered is not None:
            assert "global_state" not in entered
            assert "action_mask" not in entered

    return enter
