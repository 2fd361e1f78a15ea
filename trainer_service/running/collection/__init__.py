"""Experience collection: simulators, their agents, and collected experience as frozen records of arrays."""
