"""The dashboard's side of the push protocol that ``sawtooth.ingest.sampler`` documents.

The receiver syncs a batch to the disk before it acknowledges the batch. A pushed session is in ``live/<session>/``, as on its own host. An
additional file ``push.json`` marks the session as pushed and has the difference of the two clocks. No answer depends on data in memory, so a
killed receiver loses nothing. A stored file is a prefix of the sender's file, and the sender continues at the stored size.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.locks import exclusive_lock
from sawtooth.ingest.sampler.segments import SEGMENT_BYTES, decode_line, find_segments, segment_name
from sawtooth.ingest.schema import DRAFT_PREFIX, write_atomically
from sawtooth.ingest.telemetry.session import is_session_id

MARKER = "push.json"
MAX_BODY_BYTES = 1 << 20  # Limit of one batch in the protocol.
MAX_META_BYTES = 128 << 10  # The capabilities of 16 devices, the most of one host, take 100 kB.
# A session is silent if it received nothing for this time. A sampler sends its first samples within seconds.
SILENT_SECONDS = 600.0
MAX_SEGMENT_BYTES = 4 * SEGMENT_BYTES  # A sampler ends a segment after 8 MB, but the last record may exceed this size.
MAX_SEGMENT = 9999  # The file name has four digits, enough for 80 GB, or for 69 days of ten-minute segments.
# Silent sessions below this size are removed if there is no room for another session. One GPU writes this much in half a minute.
FEW_SAMPLES_BYTES = 64 << 10
CROWDED_SESSIONS = 50  # From this number of sessions on, silent sessions without a sample are removed.
MAX_PUSHED_BYTES = 100_000_000_000  # Limit for all pushed sessions together. Eight GPUs push 1 GB per day.
# Files of all pushed sessions together, enough for twenty sessions of 69 days. Many files of one byte would fill a disk too.
MAX_PUSHED_SEGMENTS = 200_000
RECOUNT_SECONDS = 10.0  # Least time between counts of all files. A count takes up to a second, and refused senders try again.
MAX_SESSIONS = 2000  # Limit of folders that someone with the push token can create.
TAIL_BYTES = 1 << 20  # Bytes at the end of a segment, searched for its last complete line.
CLOCK_NOISE_NS = 20_000_000  # A smaller change of the clocks' difference is noise of the network.
NO_ROOM_MESSAGE = "The dashboard has reached its limit for pushed sessions. Delete old sessions on its Live page."


class RefusedError(SawtoothError):
    """A batch that is refused; ``status`` is the HTTP status of the protocol."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class StoredSegment:
    """The size of a segment on the disk, in bytes.

    ``stored`` is False if the batch was not stored. Then the answer is 409, and the sender must continue at ``size``.
    """

    size: int
    stored: bool


class Receiver:
    """Stores pushed sessions in ``live``.

    All methods may be called from any thread and from several processes.
    """

    def __init__(self, live: Path, *, reserve_bytes: int = 0) -> None:
        self.live = live
        self.reserve_bytes = reserve_bytes
        self._checked_segments: set[tuple[str, int]] = set()
        # bytes and files of all pushed sessions, as this process counted them
        self._pushed_totals = (math.inf, math.inf)
        self._last_count_s = float("-inf")

    def stored_sizes(self, session: str) -> dict[int, int]:
        """Return the bytes on the disk by segment (0 is meta.json); {} for an unknown session.

        Raises NotFoundError if ``session`` is not an id.
        """
        folder = self._folder(session)
        sizes: dict[int, int] = {}
        for number, path in {0: folder / "meta.json", **find_segments(folder)}.items():
            if path.is_file():
                with _open_locked(path) as file:
                    sizes[number] = self._checked_size(file, session, number)
        return sizes

    def append(self, session: str, segment: int, offset: int, body: bytes) -> StoredSegment:
        """Append a batch and sync it to the disk before returning.

        Raises NotFoundError if ``session`` is not an id, and RefusedError for a batch that is refused.
        """
        folder = self._folder(session)
        if not 0 <= segment <= MAX_SEGMENT or offset < 0:
            raise RefusedError(400, "The segment must be a number from 0 to 9999, and the offset must not be negative.")
        limit = MAX_SEGMENT_BYTES if segment else MAX_META_BYTES
        if len(body) > MAX_BODY_BYTES or offset + len(body) > limit:
            raise RefusedError(413, "A batch has at most 1 MiB, a segment at most 32 MB, and meta.json at most 128 KiB.")
        self._make_folder(folder)
        path = folder / (segment_name(segment) if segment else "meta.json")
        is_new, may_write = not path.exists(), is_pushed(folder)
        if is_new and not may_write:
            return StoredSegment(0, stored=False)
        with _open_locked(path, create=is_new) as file:
            size = self._checked_size(file, session, segment)
            if offset + len(body) <= size:
                return StoredSegment(size, stored=True)
            if offset != size or not may_write:  # Only the sampler writes a session that is sampled on this host.
                return StoredSegment(size, stored=False)
            self._check_quota(len(body), int(size == 0))
            self._write(file, size, body)
        if is_new:
            _sync_folder(folder)
        return StoredSegment(size + len(body), stored=True)

    def note_clock(self, session: str, offset_ns: int) -> None:
        """Store how far the sender's clock is behind this host's (server minus client), if this has changed."""
        marker = self._folder(session) / MARKER
        stored_offset = clock_offset_ns(marker.parent)
        if marker.exists() and (stored_offset is None or abs(stored_offset - offset_ns) > CLOCK_NOISE_NS):
            write_atomically(marker, with_checksum(json.dumps({"clock_offset_ns": offset_ns}, indent=2).encode()))

    def _folder(self, session: str) -> Path:
        if not is_session_id(session):
            raise NotFoundError("This is not a session id.")
        return self.live / session

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if self._count_sessions() >= CROWDED_SESSIONS:
            self._remove_silent(0)
        if self._count_sessions() >= MAX_SESSIONS:
            self._remove_silent(FEW_SAMPLES_BYTES)
        if self._count_sessions() >= MAX_SESSIONS:
            raise RefusedError(507, NO_ROOM_MESSAGE)
        # The marker is written first, so that no reader sees the folder without it.
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=self.live))
        write_atomically(draft / MARKER, b"{}")
        _sync_folder(draft)
        try:
            draft.rename(folder)
        except OSError:  # Another request wrote the file first.
            shutil.rmtree(draft, ignore_errors=True)
        _sync_folder(self.live)

    def _check_quota(self, more_bytes: int, more_files: int) -> None:
        """Count a batch; raise RefusedError if it exceeds the limits of all pushed sessions."""
        if not self._has_room(more_bytes, more_files) and time.monotonic() - self._last_count_s >= RECOUNT_SECONDS:
            self._pushed_totals, self._last_count_s = self._count_pushed(), time.monotonic()
        if not self._has_room(more_bytes, more_files):
            raise RefusedError(507, NO_ROOM_MESSAGE)
        self._pushed_totals = self._pushed_totals[0] + more_bytes, self._pushed_totals[1] + more_files

    def _has_room(self, more_bytes: int, more_files: int) -> bool:
        return (
            self._pushed_totals[0] + more_bytes <= MAX_PUSHED_BYTES
            and self._pushed_totals[1] + more_files <= MAX_PUSHED_SEGMENTS
        )

    def _count_pushed(self) -> tuple[float, float]:
        """Return the bytes and the files of all pushed sessions."""
        sizes = []
        for folder in self.live.iterdir():
            with contextlib.suppress(OSError):  # The session was deleted meanwhile, so it has no files.
                sizes += [entry.stat().st_size for entry in os.scandir(folder)] if is_pushed(folder) else []
        return sum(sizes), len(sizes)

    def _count_sessions(self) -> int:
        return sum(1 for _ in self.live.iterdir())

    def _remove_silent(self, max_bytes: int) -> None:
        """Remove silent pushed sessions with at most ``max_bytes`` of samples.

        Otherwise, such sessions could block later samplers.
        """
        for folder in self.live.iterdir():
            with contextlib.suppress(OSError):
                if is_pushed(folder) and _is_silent(folder, max_bytes):
                    shutil.rmtree(folder)

    def _checked_size(self, file: int, session: str, segment: int) -> int:
        """Return the size of a segment in bytes.

        At the first call for a segment, an incomplete last line is removed, which a power failure may leave, and the file is synced.
        """
        size = os.fstat(file).st_size
        if (session, segment) in self._checked_segments:
            return size
        if segment and size and (self.live / session / MARKER).exists():
            valid_size = _valid_size(file, size)
            if valid_size < size:
                os.ftruncate(file, valid_size)
                size = valid_size
        os.fsync(file)
        self._checked_segments.add((session, segment))
        return size

    def _write(self, file: int, size: int, body: bytes) -> None:
        if self.reserve_bytes and shutil.disk_usage(self.live).free < self.reserve_bytes + len(body):
            raise RefusedError(507, "The dashboard's disk is almost full.")
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, size)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise RefusedError(
                507, "The dashboard's disk is full." if full else "The dashboard's disk cannot be written."
            ) from error


def _is_silent(folder: Path, max_bytes: int) -> bool:
    """Return whether a session is silent and has at most ``max_bytes`` of samples."""
    since = time.time() - SILENT_SECONDS
    if folder.stat().st_mtime > since:
        return False
    size = 0
    for path in folder.glob("samples-*"):
        file = path.stat()
        size += file.st_size
        if file.st_mtime > since or size > max_bytes:
            return False
    return True


def is_pushed(folder: Path) -> bool:
    """Return whether a session was pushed. Otherwise, a sampler on this host writes it."""
    return (folder / MARKER).exists()


def clock_offset_ns(folder: Path) -> int | None:
    """Return how far the sender's clock is behind this host's (server minus client); None if unknown."""
    try:
        value = json.loads(without_checksum((folder / MARKER).read_bytes())).get("clock_offset_ns")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, int) else None


def _valid_size(file: int, size: int) -> int:
    """Return the size up to the end of the last line with a correct checksum.

    Only the last TAIL_BYTES are searched. If they have no such line, the result is 0 or, for a larger file, ``size``.
    """
    start = max(0, size - TAIL_BYTES)
    tail = os.pread(file, size - start, start)
    end = tail.rfind(b"\n") + 1
    while end:
        begin = tail.rfind(b"\n", 0, end - 1) + 1
        if decode_line(tail[begin : end - 1]) is not None:
            return start + end
        end = begin
    return 0 if start == 0 else size


@contextmanager
def _open_locked(path: Path, *, create: bool = False) -> Iterator[int]:
    """Open a file for appending, with an exclusive lock against other servers on this folder."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0), 0o600)
    try:
        with exclusive_lock(file):
            yield file
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders.
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
