"""Saves beside the loop: trainers that are killed, and signals while one is written."""

from __future__ import annotations

import random
import re
import signal

from fault_counts import fault_counts
from processes import pause, small_settings, unreadable, write_configuration

from trainer_service.running.interop.mlagents_checkpoint import load_source

SAC = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 32,
        "buffer_size": 2000,
        "buffer_init_steps": 200,
        "steps_per_update": 20,
        "save_replay_buffer": True,
    },
}
TOGETHER = "'Basic' continues with its replay buffer."
APART = re.compile(r"'Basic' continues from step (\d+) with a replay buffer that was saved at step (\d+)")


@fault_counts(None, 60, minutes=60)
def test_a_trainer_killed_with_a_replay_buffer(scene, note, count: int) -> None:
    """State and buffer are of one moment at every resume, or both steps are told."""
    dice = random.Random(count)
    settings = small_settings(checkpoint_interval=100, keep_checkpoints=2, summary_freq=300, **SAC)
    write_configuration(scene.folder, {"Basic": settings})
    flags = ("--env=sim:basic", "--seed=1", "--num-envs=2")
    run = scene.learn(*flags, "--force")
    run.wait_for_output("Saved ")
    together = apart = spoilt = 0
    for _ in range(count):
        run.wait_for_output("Saved ")
        pause(dice.uniform(0.0, 0.5))
        run.signal(signal.SIGKILL)
        run.end()
        run.orphans()
        spoilt += unreadable(scene.folder)
        run = scene.learn(*flags, "--resume")
        run.wait_for_output("continues ")
        run.wait_for_output("Saved ")
        told = APART.search(run.output)
        together += TOGETHER in run.output
        apart += told is not None and told[1] != told[2]
    run.signal(signal.SIGTERM)
    code = run.end()
    left = list(scene.folder.rglob("*.tmp"))
    note(
        "trainer killed while it saves a replay buffer, too",
        f"{count} × kill −9; a save every 100 steps",
        f"{together} resumed with a buffer of the same moment, {apart} with another, which was told; "
        f"{spoilt} unreadable files; {len(left)} temporary files",
    )
    assert code == 0, run.output
    assert (together + apart, spoilt, left) == (count, 0, [])


def test_a_signal_while_a_save_is_written(scene, note) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(checkpoint_interval=300, summary_freq=100)})
    run = scene.learn("--env=sim:basic", "--seed=1", before="fault_injection:write_slowly")
    run.wait_for_output("writing")
    run.signal(signal.SIGTERM)
    code = run.end()
    checkpoints = scene.folder / "results" / "ppo" / "Basic"
    steps = {load_source(path).step for path in checkpoints.glob("Basic-*.safetensors")}  # type: ignore[union-attr]
    last = load_source(checkpoints / "checkpoint.safetensors").step  # type: ignore[union-attr]
    note(
        "SIGTERM while a save is written",
        "a disk that takes a second for each",
        f"exit code {code}; checkpoints of steps {sorted(steps)}; {len(run.orphans())} orphans",
    )
    assert code == 0, run.output
    assert min(steps) < 400
    assert last == max(steps)
    assert f"Saved {checkpoints.relative_to(scene.folder)}/Basic-{last}.safetensors" in run.output
    assert not list(scene.folder.rglob("*.tmp"))
