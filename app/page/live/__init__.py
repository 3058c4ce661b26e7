"""The page of a growing session."""
