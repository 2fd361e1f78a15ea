"""The mathematics, as pure functions. Imports no other folder."""
