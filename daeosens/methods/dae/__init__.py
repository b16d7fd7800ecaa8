"""Algebraic equations: which there are, their index, consistent states and resets."""
