"""Products whose last digits do not depend on where in memory their factors lie: what resuming bit for bit rests on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import trainer_service
import torch

torch.set_num_threads(1)
for rows, inputs, outputs in ((3, 4, 8), (7, 33, 5), (1, 17, 9)):
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    expected = torch.nn.functional.linear(x, weight)
    for shift in range(1, 16):
        moved = torch.empty(x.numel() + shift)[shift:].view(rows, inputs).copy_(x)
        assert torch.equal(torch.nn.functional.linear(moved, weight), expected), (rows, inputs, outputs, shift)
print("equal")
"""


@pytest.mark.process
@pytest.mark.thorough
def test_a_product_is_the_same_wherever_its_factors_lie() -> None:
    # Of its own: MKL hears nothing after its first product. On some processors it would pass unasked.
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, "equal\n"), said.stderr
