"""How large a batch fits and what each size gives: a training step tried at several, out-of-memory included, and everything put back."""
