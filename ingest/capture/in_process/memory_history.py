"""A snapshot of the CUDA allocator with its history, for ``sawtooth memory``.

PyTorch records every allocation with its Python stack, in a ring buffer of MAX_ENTRIES. Errors are suppressed, so that they never
reach the training.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

MAX_ENTRIES = 100_000  # So many allocations cover several steps of a large model. The file has at most about 200 MB.


class MemoryHistory:
    """The allocator's history from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self._torch_memory: Any = None  # While the history is recorded, this is the module torch.cuda.memory.

    def begin(self, torch: Any) -> None:
        """Begin to record, if this process uses a CUDA GPU and the training does not record a history itself."""
        with contextlib.suppress(Exception):
            if torch.cuda.is_initialized() and not torch._C._cuda_isHistoryEnabled():
                torch.cuda.memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
                self._torch_memory = torch.cuda.memory

    def end(self, path: Path | None = None) -> None:
        """Stop recording, and write the history atomically to ``path`` unless ``path`` is None."""
        torch_memory, self._torch_memory = self._torch_memory, None
        if torch_memory is None:
            return
        if path is not None:
            part = path.with_name(f"{path.name}.part")
            with contextlib.suppress(Exception):
                torch_memory._dump_snapshot(str(part))
                part.replace(path)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        with contextlib.suppress(Exception):
            torch_memory._record_memory_history(enabled=None)
