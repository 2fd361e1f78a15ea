"""The reader of configurations: YAML files and flags become validated settings, or a list of all mistakes."""
