"""What a run remembers: states, steps, events; and how to take its steps once more."""
