"""PettingZoo environments: agents that act at the same time, or in turn."""
