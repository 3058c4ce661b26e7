"""Long runs of the whole system, started by hand."""
