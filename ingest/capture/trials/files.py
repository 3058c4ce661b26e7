"""A guard of existing files: an audit hook notes files that a training is about to change or remove.

With ``guards``, the process is ended before the change. Native code raises no audit event, so `sawtooth try` finds its changes by listing
the folder. Standard library only.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from typing import Any

from .notes import Notes
from .settings import STOPPED_BY_GUARD, TrialSettings

WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
# sqlite3.connect is not listed, because a database may be opened only to read it. The listing of the folder shows changes.
EVENTS = frozenset({"open", "os.remove", "os.rename", "os.truncate", "os.rmdir", "shutil.rmtree"})
# These variables have the folders of caches, in which files may be changed.
CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "TORCH_HOME",
    "HF_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "MPLCONFIGDIR",
)
DEFAULT_CACHES = ("~/.cache", "~/.triton", "~/.nv", "~/.config/matplotlib")
CACHE_SUFFIXES = (".pyc", ".lock")  # Compiled modules and locks may be changed in any folder.


class Guard:
    """The guard of one process."""

    def __init__(self, settings: TrialSettings, notes: Notes) -> None:
        self._settings, self._notes = settings, notes
        caches = [os.environ[name] for name in CACHE_VARIABLES if os.environ.get(name)]
        caches += [os.path.expanduser(place) for place in DEFAULT_CACHES]  # noqa: PTH111
        run_folder = os.environ.get("SAWTOOTH_RUN_FOLDER", "")
        places = (*settings.private, settings.saves, *caches, run_folder, tempfile.gettempdir(), "/dev", "/proc", "/sys")
        self._unguarded = tuple({os.path.realpath(place) + os.sep for place in places if place})
        self._busy = False

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Check the files of an audit event of this process."""
        if event not in EVENTS or self._busy:
            return
        self._busy = True
        try:
            for path in self._changed(event, arguments):
                self.check(path, event)
        except Exception as error:
            self._notes.note_error(error)
        finally:
            self._busy = False

    def _changed(self, event: str, arguments: tuple[Any, ...]) -> list[Any]:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITES:
                return []
            return [path]
        return list(arguments[:2]) if event == "os.rename" else list(arguments[:1])

    def check(self, path: Any, event: str) -> None:
        """Note an existing file that is about to be changed; with ``guards``, end the process."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        real_path = os.path.realpath(os.fsdecode(path))
        if real_path.startswith(self._unguarded) or real_path.endswith(CACHE_SUFFIXES):
            return
        try:
            status = os.stat(real_path)  # noqa: PTH116
        except OSError:
            return  # The file is new.
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return
        if max(status.st_ctime, status.st_mtime) >= self._settings.began_s:
            return  # The session of trials made this file.
        self._notes.note_changed_file(real_path, event)
        if self._settings.guards:
            os._exit(STOPPED_BY_GUARD)


def watch(settings: TrialSettings, notes: Notes) -> Guard:
    """Watch this process until it ends; return its guard."""
    guard = Guard(settings, notes)
    sys.addaudithook(guard.audit)
    return guard
