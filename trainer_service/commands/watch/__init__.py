"""A local page on which a person watches a policy act, and plays: extra ``watch``."""
