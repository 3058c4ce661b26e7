"""Long runs of the whole thing, started by hand."""
