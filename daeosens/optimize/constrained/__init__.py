"""Minimisation under constraints: interior points where matrices fit, augmented Lagrangians."""
