"""The changes that `sawtooth try` makes inside a training, one module per patched part of PyTorch."""
