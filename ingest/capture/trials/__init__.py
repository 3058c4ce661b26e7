"""The part of `sawtooth try` that runs inside a training.

It makes a change, proves that the change took effect, and protects the training's files.
"""
