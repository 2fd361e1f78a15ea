"""Networks of the agents of a group, side by side or in exchange with each other."""
