"""Ends process groups that outlive the process which started them.

Simulators end by themselves when their connection does, unless they are busy or hang. A process that was killed cannot
end its children; a shell can, which reads a pipe that ends with that process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

_SHELL = """
groups=
while read -r line; do groups="$line"; done
[ -n "$groups" ] || exit 0
lives() { for group in $groups; do kill -s 0 -- "$group" && return 0; done; return 1; }
[ "$2" = kill ] || kill -s TERM -- $groups
left=$1
while [ "$left" -gt 0 ] && lives; do sleep 1; left=$((left - 1)); done
kill -s KILL -- $groups
"""
"""Each line is the list of groups; the last one counts."""


class Watchdog:
    """A shell that ends process groups soon after this process has ended, unless it was told that there are none.

    On Windows there is no such shell, and it does nothing.
    """

    def __init__(self, *, grace_s: int = 2, asks_first: bool = False) -> None:
        """Starts the shell.

        Args:
            grace_s: seconds from the end of this process until the groups are killed.
            asks_first: sends them SIGTERM at once, so that they can save.
        """
        self._groups: Sequence[int] = ()
        self._shell: subprocess.Popen[bytes] | None = None
        if sys.platform != "win32":
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "watchdog", str(grace_s), "ask" if asks_first else "kill"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def watch(self, groups: Sequence[int]) -> None:
        """Makes these the groups that are ended."""
        if groups == self._groups or self._shell is None or self._shell.stdin is None:
            return
        self._groups = list(groups)
        with suppress(OSError):  # without the shell, simulators are as safe as those of a run without workers
            self._shell.stdin.write((" ".join(f"-{group}" for group in groups) + "\n").encode())
            self._shell.stdin.flush()

    def close(self) -> None:
        """Ends the shell. The groups are left alone."""
        self.watch([])
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):
                self._shell.stdin.close()
            self._shell.wait()
