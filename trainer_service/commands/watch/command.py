"""The commands ``watch`` and ``demo``, and ``learn --watch``: a local page with a policy that acts."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common import flags
from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.jobs import Job, JobPool
from trainer_service.commands.common.output import note, say
from trainer_service.commands.watch.server import require_packages
from trainer_service.commands.watch.sources import RunSource
from trainer_service.commands.watch.watch import watch as show_page
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.programs.watchdog import Watchdog

WATCHED_AUTOSAVE_S = 5
"""Default seconds between the saves of a watched run, because the page shows the saved checkpoints."""

_DEMO_ID = "demo"
_DEMO_STEPS = 150_000
_GRACE_S = 30
"""Seconds in which the process of a page can end."""
_TELL_S = 5.0
"""Seconds between two lines on the progress of the demo."""
_PATIENCE_S = 120.0
"""Seconds that a page waits for the folder of the run that it follows."""


def watch(
    target: Annotated[str, Flag("a run id, the folder of a run, or sim:NAME, gym:ID, pettingzoo:MODULE …", "RUN|ENV")],
    *,
    env: Annotated[str | None, Flag("another environment than the run's own", "ENV")] = None,
    random: Annotated[bool, Flag("random actions in ENV (the default there)")] = False,
    expert: Annotated[bool, Flag("the scene's own expert in ENV")] = False,
    checkpoint: Annotated[str, Flag("of the run: last, best or a step (default last)", "WHICH")] = "last",
    follow: Annotated[bool, Flag("show every policy that the run saves from now on")] = False,
    begun_after: Annotated[float, Flag(argparse.SUPPRESS)] = 0.0,
    deterministic: flags.Deterministic = True,
    seed: Annotated[int, Flag("of the environment and the draws", "N")] = flags.EVALUATION_SEED,
    port: flags.PagePort = 0,
    browser: flags.Browser = True,
    results_dir: flags.ResultsDir = flags.RESULTS,
    env_args: flags.EnvArgs = None,
) -> None:  # fmt: skip
    """Opens a page on this machine: the scene as it runs, returns, action probabilities and the critic's values, with
    pause, single steps, speed and checkpoints. By keyboard, gamepad or touch you take over an agent.
    """
    run, policy = None, RANDOM
    if random or expert:
        if random and expert:
            raise UserError("--random and --expert: give one of them")
        if env is not None:
            raise UserError(
                f"--env: not allowed with --{'random' if random else 'expert'}: the first argument is "
                "the environment"
            )
        policy, env = EXPERT if expert else RANDOM, target
    elif _is_environment(target):
        env = target
    else:
        run = _begun(results_dir, target, begun_after) if begun_after else _folder(results_dir, target)
    show_page(
        run, env, policy=policy, env_args=env_args, deterministic=deterministic, checkpoint=checkpoint, follow=follow,
        seed=seed, port=port, browser=browser, say=say,
    )  # fmt: skip


def demo(
    *, port: flags.PagePort = 0, browser: flags.Browser = True, results_dir: flags.ResultsDir = flags.RESULTS
) -> None:
    """Trains 3DBall for half a minute or so and shows the policy on a local page while it learns. The run is
    results/demo; a run demo that exists is overwritten.
    """
    command = (
        "learn", "3dball", "--env=sim:3dball", f"--run-id={_DEMO_ID}", "--force", f"--results-dir={results_dir}",
        f"--set=checkpoint_settings.autosave_interval_s={WATCHED_AUTOSAVE_S - 2}",
        f"--set=behaviors.3DBall.max_steps={_DEMO_STEPS}",
    )  # fmt: skip
    require_packages()  # before a run that no page could show
    say("Training 3DBall: twelve platforms learn to keep a ball from falling. The best return is 100.")
    log = results_dir / f"{_DEMO_ID}.log"
    folder, began = results_dir / _DEMO_ID, time.time()
    log.unlink(missing_ok=True)
    with JobPool(1) as pool:
        pool.start(Job(_DEMO_ID, command, log))
        begun = _begun(results_dir, _DEMO_ID, began, lambda: not pool.wait(0.0), f"see {log}")
        run, closed = RunSource(begun, deterministic=True, seed=0), threading.Event()
        telling = threading.Thread(target=_tell_progress, args=(run, pool, closed), daemon=True)
        telling.start()
        try:
            show_page(begun, follow=True, port=port, browser=browser, say=say)
        finally:
            closed.set()
            telling.join()
    run.curve()
    say(f"The run is in {folder}: {run.progress() or 'it ended before its first summary'}.")
    say(f"Its score: mlagents-style evaluate {_DEMO_ID} --results-dir {results_dir}")


def _tell_progress(run: RunSource, pool: JobPool, closed: threading.Event) -> None:
    """Says how far a run is, the only job of a pool, until it or the page ends; and how it ended."""
    told = ""
    while not closed.wait(_TELL_S):
        ends = pool.wait(0.0)
        run.curve()
        if (progress := run.progress()) != told:
            say(progress)
            told = progress
        if ends:
            say(ends[0].message or "Training has ended. The page shows its last policy until Ctrl-C.")
            return


@contextmanager
def watched(results_dir: str, run_id: str, *, browser: bool = True) -> Iterator[None]:
    """A context in which a page of a process of its own shows the run, and every policy that it saves.

    The process ends with the context, or with this process, however that ends.
    """
    command = [
        sys.executable, "-m", "trainer_service", "watch", run_id, "--follow", f"--results-dir={results_dir}",
        f"--begun-after={time.time()}", *([] if browser else ["--no-browser"]),
    ]  # fmt: skip
    # In a session of its own: Ctrl-C is for this process, which then asks the other one to end.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    watchdog = Watchdog(grace_s=_GRACE_S, asks_first=True)
    watchdog.watch([process.pid])
    try:
        yield
    finally:
        watchdog.close()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    note(f"watch it again: mlagents-style watch {run_id} --results-dir {results_dir}")


def _is_environment(target: str) -> bool:
    return ":" in target and not Path(target).exists()


def _folder(results_dir: str | Path, run_id: str) -> Path:
    """The folder of a run. Raises UserError where there is none."""
    return RunFolder.read(results_dir, run_id).path.absolute()


def _begun(
    results_dir: str | Path,
    run_id: str,
    after: float,
    alive: Callable[[], bool] = lambda: True,
    hint: str = "start it first",
) -> Path:
    """Waits until agents of a run have come. Raises UserError where that does not happen in time.

    Args:
        results_dir, run_id: of the run.
        after: a time; what an earlier run of the same id wrote before does not count.
        alive: whether the run may still begin.
        hint: what to do if it does not.
    """
    configuration, ends = RunLayout(Path(results_dir, run_id)).configuration, time.monotonic() + _PATIENCE_S
    while True:
        if configuration.exists() and configuration.stat().st_mtime >= after:
            with suppress(UserError):
                return _folder(results_dir, run_id)
        if time.monotonic() > ends or not alive():
            raise UserError(f"'{configuration.parent}': no run has begun there; {hint}")
        time.sleep(0.2)
