"""Loops over the windows and the events of a run: back, forward, and second order."""
