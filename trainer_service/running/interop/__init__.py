"""Exchange of policies with other programs: ONNX models out, checkpoints of ML-Agents in."""
