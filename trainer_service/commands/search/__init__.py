"""Several runs with one command: child processes that train, and the use of their results."""
