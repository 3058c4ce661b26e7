"""One sampled signal by itself, as arrays of times and values: when the loop trains, its mean then, and its rhythm."""
