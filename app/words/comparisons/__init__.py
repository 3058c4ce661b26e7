"""Two runs and more in words: what changed, by what, whether it is sure, and a setting tried at several values."""
