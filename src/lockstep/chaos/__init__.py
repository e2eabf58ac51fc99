"""Chaos: a job run as a user runs it, hurt in every way we have a word for, and its output checked row by row."""
