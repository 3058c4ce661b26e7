"""`sawtooth run`: the recording of an unchanged training command.

This package launches and hooks the training, reports its progress and divides the recording into runs.
"""
