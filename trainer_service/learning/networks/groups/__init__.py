"""Networks of a group's agents, independent or communicating."""
