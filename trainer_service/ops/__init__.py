"""The maths, as pure functions of numbers. Imports nothing of ours."""
