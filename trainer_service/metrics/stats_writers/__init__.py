"""ML-Agents' plugins of the group ``mlagents.stats_writer``, which run here as they are."""
