"""Scores of bundled configurations: the rows, their runs, and the results page."""
