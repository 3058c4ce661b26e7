"""Reading the store: one locked-down engine for all recordings, and a viewer's own SQL in a process of its own."""
