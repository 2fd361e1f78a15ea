"""Scores of team learners, three seeds each: what is run, and the page that tells of it."""
