"""Predictions for other batch sizes: step time from the kernel model and a replay, and memory use."""
