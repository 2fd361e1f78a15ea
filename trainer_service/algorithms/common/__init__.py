"""Parts that algorithms are made of; the algorithms themselves are one folder up."""
