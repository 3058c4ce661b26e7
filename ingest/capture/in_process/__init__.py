"""What the recorder shares with everything else in a training process: objects that exist once, and patches that several recorders use.

The hook of `sawtooth run` is loaded under a private name, so this code may be in a process twice, once as ``sawtooth``. Standard library only.
"""
