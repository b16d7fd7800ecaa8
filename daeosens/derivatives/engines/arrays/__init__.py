"""Sweeps with derivatives at all stage points at once, as blocks of arrays."""
