"""Figures of results; needs the optional extra ``report`` (matplotlib)."""
