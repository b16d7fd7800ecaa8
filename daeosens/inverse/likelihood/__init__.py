"""Data and noise of experiments, and the likelihood that they make."""
