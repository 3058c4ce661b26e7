"""Implementation of `sawtooth attach PID`, which records a training that already runs.

It finds the training's processes, and injects and later removes the hook. Where that is impossible, it watches them from outside.
"""
