"""Many viewers at once, also during uploads."""
