"""Search for the largest batch that fits, and the speed of each size; everything is restored."""
