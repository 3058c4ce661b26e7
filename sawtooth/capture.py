"""Functions that record a training loop: ``profile``, ``find_batch_size`` and two callbacks.

They are the public names of ``sawtooth.ingest.capture``. Importing this module loads only the standard library.
"""

from sawtooth.ingest.capture.batch_size.finder import find_batch_size
from sawtooth.ingest.capture.callbacks import hugging_face_callback, lightning_callback
from sawtooth.ingest.capture.recorder import profile

__all__ = ["find_batch_size", "hugging_face_callback", "lightning_callback", "profile"]
