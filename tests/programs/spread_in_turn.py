"""simple_spread of mpe2 as a module that only makes environments with agents that act in turn."""

from __future__ import annotations

from mpe2.simple_spread_v3 import env

__all__ = ["env"]
