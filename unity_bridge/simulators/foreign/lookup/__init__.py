"""Environments and wrappers by the names that users write: registered ids, modules, functions and classes."""
