"""Failures inside the trainer and of the machine below it: a function of the run fails where none is expected."""

from __future__ import annotations

import time
from pathlib import Path

from fault_counts import fault_counts
from processes import small_settings, wait_until, write_configuration

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


@fault_counts(1, 20)
def test_an_exception_inside(scene, note, count: int) -> None:
    """The run says where, keeps what it learned and ends; or it goes on without what failed."""
    write_configuration(scene.folder, {"Basic": small_settings(checkpoint_interval=200, summary_freq=200)})
    flags = ("--env=sim:basic", "--num-envs=2", "--seed=1", "--force")
    ended, went_on, slowest, wrong = 0, 0, 0.0, []
    for place in BREAKS[:: max(1, len(BREAKS) // count)]:
        run = scene.learn(*flags, before="fault_injection:install", BREAK=place)
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
