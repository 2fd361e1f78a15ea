"""The collecting half of a run: simulators, their agents, and what these did, as frozen records of arrays."""
