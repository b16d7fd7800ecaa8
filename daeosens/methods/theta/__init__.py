"""Theta methods, endpoint and one-stage form: the step equation and its derivatives."""
