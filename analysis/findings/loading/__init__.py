"""Advice for data loaders: the number of workers that a code change should use."""
