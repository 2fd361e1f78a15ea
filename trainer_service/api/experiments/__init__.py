"""Several runs with one command, from a program."""
