"""Models of others and for others: ONNX out, checkpoints of ML-Agents in."""
