"""Acts by the ONNX model of a policy, which policy.json beside it describes. Needs NumPy and onnxruntime only."""

import json
from pathlib import Path

import numpy as np
import onnxruntime


class Policy:
    def __init__(self, description="policy.json", seed=None):
        if seed is not None:  # of drawn actions
            onnxruntime.set_seed(seed)  # of each model that this process loads from now on
        path = Path(__file__).parent / description
        self.about = json.loads(path.read_text(encoding="utf-8"))
        self.session = onnxruntime.InferenceSession(path.with_name(self.about["model"]))
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.memories = {}  # of each agent, by its id

    def act(self, observations, ids=None, masks=None, indices=None, greedy=True):
        """Returns the actions of M agents. observations: [M, *shape] for each sensor; indices: in the group, [M]."""
        about, feed, rows = self.about, {}, len(observations[0])
        for sensor, given in zip(about["observations"], map(np.asarray, observations), strict=True):
            unit = sensor["bytes_per_unit"] if given.dtype == np.uint8 else None
            feed[sensor["input"]] = given.astype(np.float32) / np.float32(unit or 1)
        if index := about["agent_index"]:
            feed[index["input"]] = np.eye(index["size"], dtype=np.float32)[indices]
        if mask := about["action_masks"]:
            allowed = np.ones((rows, mask["size"])) if masks is None else masks
            feed[mask["input"]] = np.asarray(allowed, np.float32)
        if memory := about["memory"]:
            ids, start = range(rows) if ids is None else list(ids), np.full(memory["shape"], memory["start"])
            feed[memory["input"]] = np.array([self.memories.get(agent, start) for agent in ids], np.float32)
        found = dict(zip(self.outputs, self.session.run(self.outputs, feed), strict=True))
        self.memories |= zip(ids, found[memory["output"]], strict=True) if memory else {}
        which = "greedy" if greedy else "drawn"
        return {kind: found[about[kind][which]] for kind in ("continuous", "discrete") if about[kind]}

    def reset(self, *ids):  # forgets the agents whose episodes begin, or all
        self.memories = {agent: kept for agent, kept in self.memories.items() if ids and agent not in ids}
