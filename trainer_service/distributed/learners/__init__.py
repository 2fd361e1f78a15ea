"""Learner ranks: processes that compute every update together, each a part of every minibatch."""
