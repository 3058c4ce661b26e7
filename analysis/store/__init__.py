"""Reading the store: one locked-down engine for all recordings, and a separate process for user SQL."""
