"""Experience collection: simulators, their agents, and their experience as frozen records of arrays."""
