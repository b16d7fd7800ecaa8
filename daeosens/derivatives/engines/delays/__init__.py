"""Sweeps over whole runs of delay equations, by arrays."""
