"""PettingZoo environments as scenes; each copy's agents are a group."""
