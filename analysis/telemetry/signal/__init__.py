"""One sampled signal as arrays of times and values: its training part, its mean and its period.

``warm_up`` does the same for the steps of a loop.
"""
