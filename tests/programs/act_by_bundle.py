"""Plays recorded decisions to a bundle's runner, in a process that cannot import torch or this project.

    python -I act_by_bundle.py BUNDLE EPISODE.json RESULT.json

The ``decisions`` follow each other. The one of the ``crowd`` is drawn for many agents, with three seeds.
"""

import json
import runpy
import sys
from pathlib import Path

import numpy as np

REFUSED = ("torch", "trainer_service", "unity_bridge", "mlagents_envs", "onnx")
CROWD_SEEDS = (1, 1, 2)


class Refusal:
    @staticmethod
    def find_spec(name, path=None, target=None):
        assert name.partition(".")[0] not in REFUSED, f"the runner imports {name}"


def act(policy, decision, copies=1, **how):
    sensors = [np.repeat(np.array(numbers, kind), copies, 0) for numbers, kind in decision["observations"]]
    rows = {name: np.repeat(decision[name], copies, 0) for name in ("masks", "indices") if decision[name]}
    return {
        kind: values.tolist() for kind, values in policy.act(sensors, decision["ids"], **rows, **how).items()
    }


def main(bundle, episode, result):
    assert not [name for name in REFUSED if name in sys.modules]
    sys.meta_path.insert(0, Refusal())
    make = runpy.run_path(str(Path(bundle, "policy.py")))["Policy"]
    recorded, policy, decided = json.loads(Path(episode).read_text()), make(), []
    for decision in recorded["decisions"]:
        if decision["begin"]:
            policy.reset(*decision["begin"])
        decided.append(act(policy, decision))
    drawn = [
        act(make(seed=seed), recorded["crowd"], recorded["copies"], greedy=False) for seed in CROWD_SEEDS
    ]
    Path(result).write_text(json.dumps({"decided": decided, "drawn": drawn}))


if __name__ == "__main__":
    main(*sys.argv[1:])
