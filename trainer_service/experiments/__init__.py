"""Several runs with one command: child processes that train, and what is made of their results."""
