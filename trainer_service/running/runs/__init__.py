"""The folder of a run on disk: its files, lock, status and checkpoints."""
