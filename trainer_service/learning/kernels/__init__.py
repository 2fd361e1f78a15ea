"""Fast paths of MLP policies, which replace torch's modules and autograd.

A kernel computes the same values as the simple version, in another order of summation. The simple version stays: other
networks use it, and tests compare the kernel with it.
"""

from __future__ import annotations

from unity_bridge.fast_paths import SLOW, fast_paths_allowed

__all__ = ["SLOW", "fast_paths_allowed"]
