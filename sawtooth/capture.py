"""Record a training loop: ``from sawtooth.capture import profile``; try batch sizes: ``find_batch_size``.

The public names of ``sawtooth.ingest.capture``. Importing them loads nothing but the standard library.
"""

from sawtooth.ingest.capture.batch_size.finder import find_batch_size
from sawtooth.ingest.capture.callbacks import hugging_face_callback, lightning_callback
from sawtooth.ingest.capture.recorder import profile

__all__ = ["find_batch_size", "hugging_face_callback", "lightning_callback", "profile"]
