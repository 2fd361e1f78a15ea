"""Demonstrations: recording them, and reading what recordings hold."""
