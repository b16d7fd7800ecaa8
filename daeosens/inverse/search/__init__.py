"""Where a fit starts, from how many points, and how it ends."""
