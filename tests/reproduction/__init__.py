"""Published results, computed again: used by test_reproduce.py and scripts/reproduce."""
