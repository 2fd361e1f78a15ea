"""Fast paths of MLP policies: what may be computed in the place of torch's modules and autograd, and when.

A kernel means exactly what the simple version beside it means, and sums in another order. The simple version stays:
it is what every other network takes, and what tests hold a kernel equal to.
"""

from __future__ import annotations

from unity_bridge.fast_paths import SLOW, fast_paths_allowed

__all__ = ["SLOW", "fast_paths_allowed"]
