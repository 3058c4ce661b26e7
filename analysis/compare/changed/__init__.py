"""Differences between two runs, their shares of the gain, and the gain that was predicted for them."""
