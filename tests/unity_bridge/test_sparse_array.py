"""Large arrays of which little is written."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from unity_bridge.arrays import sparse_array

PROGRAM = """
from pathlib import Path
import numpy as np
from unity_bridge.arrays import sparse_array
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
sparse_array((1 << 10,), np.float32)[:] = 1
before = resident()
array = sparse_array((1 << 25,), np.float32)
array[:: 1 << 19] = 1  # a number in every 2 MiB
print(resident() - before)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_number_takes_a_small_page() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 8 * 2**20  # 128 MiB with huge pages


@pytest.mark.parametrize("rows", [0, 3, 1 << 20])
def test_it_is_an_array_like_any_other(rows: int) -> None:
    array = sparse_array((rows, 3), np.int64)
    array[:] = np.arange(3)
    assert array.shape == (rows, 3)
    assert array.dtype == np.int64
    assert np.array_equal(array[-1:], np.arange(3)[None][:rows])
