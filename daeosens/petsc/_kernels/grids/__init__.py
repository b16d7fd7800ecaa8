"""Loops over the points of distributed grids, and solvers that use them."""
