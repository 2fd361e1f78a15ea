"""Learner ranks: processes that compute every update together, each for a part of every minibatch."""
