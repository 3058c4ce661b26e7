"""Objects that exist once per training process, and patches that several recorders share.

The hook of `sawtooth run` is loaded under a private name. So this code may be loaded twice in a process, once as ``sawtooth``.
Standard library only.
"""
