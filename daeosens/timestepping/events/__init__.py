"""The event loop: sign changes are detected, located to rounding, and applied in order."""
