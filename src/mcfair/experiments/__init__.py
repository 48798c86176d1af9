"""Grids of runs, their results, and where they are executed."""
