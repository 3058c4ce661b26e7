"""How large a batch fits and what each size gives: a training step tried at several, out-of-memory included, and everything put back."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(__name__, {"finder": ("find_batch_size",), "search": ("BatchSizes", "Trial")})
