"""The commands of ``mlagents-style`` and the functions of the same names in Python."""
