"""Notes of one training process for `sawtooth try`: what it uses, changes that took effect, failures.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MAX_ENTRIES = 20  # More entries of one kind are not noted. Further loaders or optimizers are usually like the first ones.


class Notes:
    """Notes that are written to ``path()`` after each addition, so that a killed process leaves them too."""

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        self._lock = threading.RLock()
        self.content: dict[str, Any] = {"seen": {}, "proofs": {}, "refused": {}, "errors": [], "files": []}

    def note_seen(self, what: str, /, **facts: Any) -> None:
        """Note an object or a setting that the training uses."""
        with self._lock:
            entries = self.content["seen"].setdefault(what, [])
            if facts not in entries and len(entries) < MAX_ENTRIES:
                entries.append(facts)
                self.write()

    def note_proof(self, slug: str, proof: str) -> None:
        """Note what shows that a change took effect."""
        if slug not in self.content["proofs"]:
            self.content["proofs"][slug] = proof
            self.write()

    def note_refusal(self, slug: str, why: str) -> None:
        """Note why a change was not made."""
        if slug not in self.content["refused"]:
            self.content["refused"][slug] = why
            self.write()

    def note_error(self, error: BaseException) -> None:
        """Note an error of Sawtooth's own code, which the training does not see."""
        if len(self.content["errors"]) < MAX_ENTRIES:
            self.content["errors"].append(f"{type(error).__name__}: {error}"[:500])
            self.write()

    def note_changed_file(self, path: str, how: str) -> None:
        """Note an existing file that the training changes or removes."""
        entry = {"path": path, "how": how}
        if entry not in self.content["files"] and len(self.content["files"]) < MAX_ENTRIES:
            self.content["files"].append(entry)
            self.write()

    def note_values(self, **facts: Any) -> None:
        """Note values that exist once per process."""
        self.content.update(facts)
        self.write()

    def write(self) -> None:
        """Replace the file; errors, such as a full disk, do not reach the training."""
        with contextlib.suppress(Exception), self._lock:
            path = self._path()
            part = path.with_suffix(".part")
            part.write_text(json.dumps(self.content, default=str))
            part.replace(path)


def read_notes(path: Path) -> Mapping[str, Any]:
    """Return the notes in a file; empty notes if the file cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        content: Mapping[str, Any] = json.loads(path.read_text())
        return content
    return {"seen": {}, "proofs": {}, "refused": {}, "errors": [], "files": []}
