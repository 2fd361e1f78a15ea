"""What ends simulators that outlive the process which started them, for that was killed and they do not notice.

Simulators end by themselves when their connection does, unless they are busy or hang. Then nobody looks after them but
a shell, which reads a pipe that ends with the worker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress

_SHELL = """
groups=
while read -r line; do groups="$line"; done
[ -n "$groups" ] || exit 0
sleep 2
kill -s KILL -- $groups
"""
"""Each line is the list of groups; the last one counts."""


class Watchdog:
    """A shell that kills process groups soon after this process has ended, unless it was told that there are none."""

    def __init__(self) -> None:
        self._groups: Sequence[int] = ()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, groups: Sequence[int]) -> None:
        """Makes these the groups that are killed."""
        if groups == self._groups or self._shell.stdin is None:
            return
        self._groups = list(groups)
        with suppress(OSError):  # without the shell, simulators are as safe as those of a run without workers
            self._shell.stdin.write((" ".join(f"-{group}" for group in groups) + "\n").encode())
            self._shell.stdin.flush()
