"""A snapshot of the CUDA allocator with its history, for ``sawtooth memory``.

PyTorch's own history is used: every allocation with its Python stack, in a ring of ENTRIES. Its errors never reach the training.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

ENTRIES = 100_000  # some steps of a large model; at most about 200 MB in the file


class MemoryHistory:
    """The allocator's history from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self._memory: Any = None

    def begin(self, torch: Any) -> None:
        """Begin, unless this process uses no CUDA GPU or the training records a history of its own."""
        with contextlib.suppress(Exception):
            if torch.cuda.is_initialized() and not torch._C._cuda_isHistoryEnabled():
                torch.cuda.memory._record_memory_history(max_entries=ENTRIES, stacks="python")
                self._memory = torch.cuda.memory

    def end(self, path: Path | None = None) -> None:
        """End the history; write it to ``path``, whole or not at all."""
        memory, self._memory = self._memory, None
        if memory is None:
            return
        if path is not None:
            part = path.with_name(f"{path.name}.part")
            with contextlib.suppress(Exception):
                memory._dump_snapshot(str(part))
                part.replace(path)
            part.unlink(missing_ok=True)
        with contextlib.suppress(Exception):
            memory._record_memory_history(enabled=None)
