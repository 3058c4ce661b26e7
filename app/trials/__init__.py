"""`sawtooth try`: choose changes of a training, run each, and say what it brought."""
