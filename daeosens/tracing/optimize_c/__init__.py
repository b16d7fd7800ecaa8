"""The C text of traced functions made faster: loops found again, several points at a time."""
