"""Objects that exist once per training process, and patches that several recorders share.

The hook of `sawtooth run` is loaded under a private package name. If the training imports ``sawtooth`` too, this code is loaded twice.
Standard library only.
"""
