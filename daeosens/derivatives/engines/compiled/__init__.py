"""Sweeps in C over the functions of a compiled model."""
