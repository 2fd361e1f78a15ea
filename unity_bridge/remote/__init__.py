"""Connections over a network: TLS with a pinned certificate, tokens, and the join code that holds both."""
