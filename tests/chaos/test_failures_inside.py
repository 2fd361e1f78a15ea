"""Failures inside the trainer and of the machine below it: a function of the run fails where none is expected."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fault_counts import fault_counts
from processes import free_port, small_settings, wait_until, write_configuration

from trainer_service.running.interop.mlagents_checkpoint import load_source

BREAKS = [
    "trainer_service.running.behaviors.behavior:Behavior.update:1",
    "trainer_service.running.behaviors.behavior:Behavior.add:60",
    "trainer_service.running.collection.collector:Collector.act:60",
    "trainer_service.running.collection.router:Router.act:60",
    "trainer_service.running.behaviors.registry:Behaviors.drain_progress:60",
    "trainer_service.running.behaviors.behavior:Behavior.ready_to_update:60",
    "trainer_service.running.behaviors.behavior:Behavior.summarize:2",
    "trainer_service.running.training.recorder:checkpoint_of:2",
    "trainer_service.running.training.recorder:models:2",
    "trainer_service.running.training.saving:save_checkpoint:2",
    "trainer_service.running.interop.onnx_export:export_policy:2",
    "trainer_service.running.training.recorder:Recorder.write_due:60",
    "trainer_service.running.training.recorder:Recorder._summarize:2",
    "trainer_service.running.metrics.console:Console.summary:2",
    "trainer_service.running.metrics:JsonlWriter.write:2",
    "trainer_service.running.curriculum:Curriculum.advance:60",
    "trainer_service.running.collection.channels:Channels.outgoing:60",
    "unity_bridge.server.bridge:Bridge.receive:60",
    "unity_bridge.server.bridge:Bridge.reply:60",
    "unity_bridge.server.session:Session.reply:60",
]
"""The 20 places, and at which call they fail."""


def whole(folder: Path) -> bool:
    """Whether there is a checkpoint, and all are readable."""
    paths = list(folder.rglob("*.safetensors"))
    return bool(paths) and all(load_source(path) for path in paths)


def start(scene, place: str, error: str):
    write_configuration(scene.folder, {"Basic": small_settings(checkpoint_interval=200, summary_freq=200)})
    flags = ("--env=sim:basic", "--num-envs=2", "--seed=1", "--force")
    return scene.learn(*flags, before="fault_injection:install", BREAK=f"{place}:{error}")


@fault_counts(1, 20)
def test_an_exception_inside(scene, note, count: int) -> None:
    """The run says where, keeps what it learned and ends; or it goes on without what failed."""
    ended, went_on, slowest, wrong = 0, 0, 0.0, []
    for place in BREAKS[:: max(1, len(BREAKS) // count)]:
        run = start(scene, place, "RuntimeError")
        wait_until(lambda: "injected" in run.output or run.poll() is not None, f"{place} to fail")  # noqa: B023
        began = time.monotonic()
        steps = run.output.count("Step: ")
        wait_until(lambda: run.poll() is not None or run.output.count("Step: ") > steps + 3, "its end")  # noqa: B023
        code = run.poll()
        if code is None:
            went_on += 1
            run.signal(15)
            run.end()
        else:
            ended += 1
            slowest = max(slowest, time.monotonic() - began)
        sound = (
            whole(scene.folder / "results") and not run.orphans() and code != 0 and "injected" in run.output
        )
        if not sound:
            wrong.append(f"{place}: {code}\n{run.output[-1500:]}")
    note(
        "an exception injected into the trainer",
        f"{ended + went_on} places",
        f"{ended} runs ended (slowest in {slowest:.1f} s) with the reason and a checkpoint, {went_on} went on; "
        f"{len(wrong)} otherwise",
    )
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.thorough
def test_memory_of_the_device_that_runs_out(scene, note) -> None:
    run = start(scene, "trainer_service.running.behaviors.behavior:Behavior.update:1", "OutOfMemoryError")
    code = run.end()
    sizes = "batch" in run.output
    note(
        "CUDA out of memory, injected into an update",
        "1",
        f"exit code {code}, a message with batch sizes: {'yes' if sizes else 'no'}; checkpoint kept",
    )
    assert code not in (0, -9)
    assert "Traceback" not in run.output
    assert sizes
    assert whole(scene.folder / "results")
    assert not run.orphans()


@pytest.mark.chaos
@pytest.mark.parametrize("flag", ["--resume", "", "--force"])
def test_two_trainers_of_one_run(scene, note, flag: str) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(summary_freq=200)})
    first = scene.learn("--env=sim:basic", "--seed=1", "--force")
    first.wait_for_output("Step: ")
    second = scene.learn("--env=sim:basic", "--seed=1", *filter(None, [flag]))
    code = second.end()
    output = first.output.count("Step: ")
    first.wait_for_output("Step: ", times=output + 1)
    note(f"a second trainer of one run {flag}", "1", f"exit code {code}; the first goes on")
    assert code == 2, second.output
    assert "Traceback" not in second.output


@fault_counts(None, 32)
def test_trainers_that_start_together(scene, note, count: int) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(max_steps=200, summary_freq=100)})
    runs = [
        scene.learn("--env=sim:basic", f"--run-id=run-{number}", "--num-envs=2") for number in range(count)
    ]
    codes = [run.end(600.0) for run in runs]
    note("trainers started together, 2 simulators each", f"{count}", f"{codes.count(0)} completed")
    assert not any(codes), next(run.output for run in runs if run.poll())


@pytest.mark.chaos
def test_a_port_that_is_taken(scene, note) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(summary_freq=200)})
    port = free_port()
    first = scene.learn(f"--port={port}", "--run-id=first")
    first.wait_for_output("Listening on port")
    second = scene.learn(f"--port={port}", "--run-id=second")
    code = second.end()
    note("a port that is taken", "1", f"exit code {code}, which names it: {str(port) in second.output}")
    assert code == 2
    assert str(port) in second.output
    assert first.poll() is None
