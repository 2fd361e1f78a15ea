"""The learning tests that ML-Agents' own developers run, with our trainer."""
