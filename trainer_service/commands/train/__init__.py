"""The command ``learn`` and the function ``train``."""
