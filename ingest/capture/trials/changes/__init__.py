"""The changes that `sawtooth try` can make inside a training, a module for each part of PyTorch that they patch."""
