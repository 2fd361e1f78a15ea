"""Keys of checkpoints that earlier versions saved, as they are called today. Files are translated as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PRESENT_KEYS = {
    "actors' optimizer": "actor_optimizer",
    "actors_optimizer": "actor_optimizer",
    "critic's optimizer": "critic_optimizer",
    "critics_optimizer": "critic_optimizer",
    "critic's steps": "critic_steps",
    "drawing": "sampling_seed",
    "moments": "joint_steps",
    "targets": "target_critics",
}
_PRESENT_INDEX_KEYS = {"slots": "agent_indices"}


def with_present_keys(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an algorithm under the keys of today, whichever version saved it."""
    state = {_PRESENT_KEYS.get(key, key): value for key, value in algorithm.items()}
    if "lived" in state:
        state["exploration"] = {"steps": state.pop("lived")}
    collected = state.get("collected")
    if isinstance(collected, Mapping) and isinstance(collected.get("joint"), Mapping):
        trajectories = dict(collected)
        index = trajectories.pop("joint")
        trajectories["group_index"] = {
            _PRESENT_INDEX_KEYS.get(key, key): column for key, column in index.items()
        }
        state["collected"] = trajectories
    return state
