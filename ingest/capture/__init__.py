"""Record a training: `profile` in the loop, `sawtooth run`, `attach` and `try`, batch size search.

The package imports only the standard library and PyTorch, so that it can be installed next to a training without the rest of Sawtooth.
"""
