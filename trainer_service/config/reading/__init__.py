"""From YAML files and flags to a validated configuration, or to every mistake at once."""
