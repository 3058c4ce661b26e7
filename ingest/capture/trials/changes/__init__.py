"""The changes that `sawtooth try` makes inside a training, a module for each patched part."""
