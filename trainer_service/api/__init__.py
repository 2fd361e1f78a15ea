"""The functions that a program calls and the command line, too: train, evaluate, record, export, metrics."""
