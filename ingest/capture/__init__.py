"""Recording of a training loop from inside the training process, into one file.

The loop is timed, profiled and timed again. This needs the standard library and the installed PyTorch. The rest of Sawtooth is not loaded.
"""
