"""Gymnasium's environments: what is run there, and the page of the scores."""
