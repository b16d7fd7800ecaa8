"""How often what resembles what was looked at before is looked at again: ever more rarely."""

from __future__ import annotations


def is_due(use: int) -> bool:
    """Whether a number is a power of eight."""
    return is_power_of_two(use) and use.bit_length() % 3 == 1


def is_power_of_two(use: int) -> bool:
    """Whether a number is a power of two."""
    return not use & (use - 1)
