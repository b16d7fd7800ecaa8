"""Derivative sweeps over the steps of a run, in C."""
