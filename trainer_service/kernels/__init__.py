"""Fast paths of the usual network: what a kernel may do in the place of autograd, and which one does it.

A kernel means exactly what the simple version beside it means, and sums in another order. The simple version stays:
it is what every other network takes, and what tests hold a kernel equal to.
"""

from __future__ import annotations

from unity_bridge.fast_paths import SLOW, fast_paths_allowed

__all__ = ["SLOW", "fast_paths_allowed"]
