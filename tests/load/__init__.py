"""Many viewers at once, and uploads beside them."""
