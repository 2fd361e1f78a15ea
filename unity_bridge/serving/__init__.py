"""Trained policies as a gRPC service: its messages as records of arrays, and its server."""
