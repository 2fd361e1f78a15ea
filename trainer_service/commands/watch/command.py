"""The commands ``watch`` and ``demo``, and ``learn --watch``: a local page with a policy that acts."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_service.commands.common.output import note, say
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError

WATCHED_AUTOSAVE_S = 5
"""Default seconds between the saves of a watched run, because the page shows the saved checkpoints."""

_DEMO_ID = "demo"
_DEMO_STEPS = 150_000
_GRACE_S = 30
"""Seconds in which the process of a page can end."""
_PATIENCE_S = 120.0
"""Seconds that a page waits for the folder of the run that it follows."""

# What is heavy is imported where it is needed: torch takes seconds.


def watch(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style watch RUN|ENV``. Returns the exit code.

    Raises:
        UserError: no such run or environment, or flags that do not go together.
        SceneError: the environment cannot be opened.
    """
    from trainer_service.commands.watch.watch import watch as show_page

    target, env, run, policy = parsed.target, parsed.env, None, RANDOM
    if parsed.random or parsed.expert:
        if parsed.random and parsed.expert:
            raise UserError("--random and --expert: give one of them")
        if env is not None:
            raise UserError(
                f"--env: of no use with --{'random' if parsed.random else 'expert'}: the first argument is "
                "the environment"
            )
        policy, env = EXPERT if parsed.expert else RANDOM, target
    elif _is_environment(target):
        env = target
    else:
        results, begun_after = parsed.results_dir, parsed.begun_after
        run = _begun(results, target, begun_after) if begun_after else _folder(results, target)
    show_page(
        run,
        env,
        policy=policy,
        env_args=parsed.env_args,
        deterministic=not parsed.stochastic,
        checkpoint=parsed.checkpoint,
        follow=parsed.follow,
        seed=parsed.seed,
        port=parsed.port,
        browser=parsed.browser,
        say=say,
    )
    return 0


def demo(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style demo``: a small run, and the page that shows it while it learns. Returns the exit code."""
    from trainer_service.commands.common.jobs import Job, JobPool
    from trainer_service.commands.watch.watch import watch as show_page

    results = Path(parsed.results_dir)
    command = (
        "learn", "3dball", "--env=sim:3dball", f"--run-id={_DEMO_ID}", "--force", f"--results-dir={results}",
        f"--set=checkpoint_settings.autosave_interval_s={WATCHED_AUTOSAVE_S - 2}",
        f"--set=behaviors.3DBall.max_steps={_DEMO_STEPS}",
    )  # fmt: skip
    say("Training 3DBall: twelve platforms learn to keep a ball from falling. The best return is 100.")
    log = results / f"{_DEMO_ID}.log"
    folder, began = results / _DEMO_ID, time.time()
    log.unlink(missing_ok=True)
    with JobPool(1) as pool:
        pool.start(Job(_DEMO_ID, command, log))
        show_page(
            _begun(results, _DEMO_ID, began, lambda: not pool.wait(0.0), f"see {log}"),
            follow=True,
            port=parsed.port,
            browser=parsed.browser,
            say=say,
        )
    say(f"The run is in {folder}. Its score: mlagents-style evaluate {_DEMO_ID} --results-dir {results}")
    return 0


@contextmanager
def watched(results_dir: str, run_id: str, *, browser: bool = True) -> Iterator[None]:
    """A context in which a page of a process of its own shows the run, and every policy that it saves.

    The process ends with the context, or with this process, however that ends.
    """
    from unity_bridge.programs.watchdog import Watchdog

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
    from trainer_service.running.runs.folder import RunFolder

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
    from trainer_service.running.runs.layout import RunLayout

    configuration, ends = RunLayout(Path(results_dir, run_id)).configuration, time.monotonic() + _PATIENCE_S
    while True:
        if configuration.exists() and configuration.stat().st_mtime >= after:
            with suppress(UserError):
                return _folder(results_dir, run_id)
        if time.monotonic() > ends or not alive():
            raise UserError(f"'{configuration.parent}': no run has begun there; {hint}")
        time.sleep(0.2)
