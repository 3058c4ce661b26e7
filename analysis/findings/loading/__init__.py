"""The advice for loaders: how many workers a change names."""
