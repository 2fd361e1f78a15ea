"""One run of Stable-Baselines3 or SBX, by a Python that has it installed, for the comparison of speeds.

    python sb3_driver.py LIBRARY TASK

LIBRARY is ``stable_baselines3`` or ``sbx``; TASK is a JSON object: learner, env, copies, steps, units, seed and values,
the further arguments of the learner. Prints one JSON object: stamps, the steps and seconds at each start of a rollout
and at the end.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main(library: str, task: dict[str, Any]) -> None:
    """Trains, and prints what came out."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    stamps: list[tuple[int, float]] = []

    class Stamps(BaseCallback):
        def _on_rollout_start(self) -> None:
            stamps.append((self.num_timesteps, time.perf_counter() - began))

        def _on_step(self) -> bool:
            return True

    learner = getattr(importlib.import_module(library), task["learner"].upper())
    worlds = make_vec_env(task["env"], n_envs=task["copies"], seed=task["seed"])
    network = {"net_arch": [task["units"], task["units"]]}
    model = learner(
        "MlpPolicy", worlds, seed=task["seed"], device="cpu", policy_kwargs=network, **task["values"]
    )
    began = time.perf_counter()
    model.learn(task["steps"], callback=Stamps())
    stamps.append((model.num_timesteps, time.perf_counter() - began))
    print(json.dumps({"stamps": stamps}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
