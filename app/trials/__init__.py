"""`sawtooth try`: choose changes of a training, run each change, and report its gain."""
