"""Steps that end at an event, and resets: derivatives of the located time and of the jump."""
