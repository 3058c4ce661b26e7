"""`sawtooth run`: the recording of an unchanged training command.

This package launches and hooks the training, reports its progress, and makes one run of each training that the command started.
"""
