"""The dashboard's side of the push protocol that ``sawtooth.ingest.sampler`` documents.

It stores bytes by (session, segment, offset) on the disk before it acknowledges them. A pushed session is in ``live/<session>/``, like on its own
host, with an additional file ``push.json``, which marks it as pushed and has the difference of the two clocks. No answer depends on data in
memory, so a killed receiver loses nothing. A file here is a prefix of the sender's file, and the sender continues from its size.
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
from sawtooth.ingest.locks import held
from sawtooth.ingest.sampler.segments import SEGMENT_BYTES, decode_line, find_segments, segment_name
from sawtooth.ingest.schema import DRAFT_PREFIX, write_atomically
from sawtooth.ingest.telemetry.session import is_session_id

MARKER = "push.json"
MAX_BODY_BYTES = 1 << 20  # Limit of one batch in the protocol.
MAX_META_BYTES = 128 << 10  # 16 devices, the maximum of one host, take 100 kB with their capabilities
# A session is silent if it received nothing for this time. A sampler sends its first samples within seconds.
EMPTY_SECONDS = 600.0
MAX_SEGMENT_BYTES = 4 * SEGMENT_BYTES  # A sampler ends a segment after 8 MB; its last record may exceed this.
MAX_SEGMENT = 9999  # The file name has four digits: 80 GB, or 69 days of ten-minute segments.
# Half a minute of one GPU. Smaller silent sessions are removed if there is no room for another session.
LITTLE_BYTES = 64 << 10
CROWDED = 50  # From this number of sessions on, silent sessions without a sample are removed.
MAX_PUSHED_BYTES = 100_000_000_000  # Limit for all pushed sessions together. Eight GPUs push 1 GB per day.
# Files of all pushed sessions together, enough for twenty sessions of 69 days. Many files of one byte would fill a disk too.
MAX_PUSHED_SEGMENTS = 200_000
RECOUNT_SECONDS = 10.0  # Between counts of all files, because a count takes up to a second and refused senders try again.
MAX_SESSIONS = 2000  # Limit of folders that someone with the push token can create.
TAIL_BYTES = 1 << 20  # Bytes at the end of a segment, searched for its last complete line.
CLOCK_MOVED_NS = 20_000_000  # A smaller change of the offset is noise of the network.
NO_ROOM = "The dashboard has reached its limit for pushed sessions. Delete old sessions on its Live page."


class RefusedError(SawtoothError):
    """A batch that is refused; ``status`` is the HTTP status of the protocol."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class StoredSegment:
    """The size of a segment that is on the disk now.

    ``agreed`` is False if the batch was not stored and the sender must continue from ``size`` (409).
    """

    size: int
    agreed: bool


class Receiver:
    """Stores pushed sessions in ``live``.

    All methods may be called from any thread and from several processes.
    """

    def __init__(self, live: Path, *, reserve_bytes: int = 0) -> None:
        self.live = live
        self.reserve_bytes = reserve_bytes
        self._settled: set[tuple[str, int]] = set()
        # bytes and files, as counted by this process; counted again before a batch is refused
        self._pushed = (math.inf, math.inf)
        self._counted = float("-inf")

    def held(self, session: str) -> dict[int, int]:
        """Return the bytes on the disk by segment; {} for an unknown session.

        Raises NotFoundError if ``session`` is not an id.
        """
        folder = self._folder(session)
        sizes: dict[int, int] = {}
        for number, path in {0: folder / "meta.json", **find_segments(folder)}.items():
            if path.is_file():
                with _open_locked(path) as file:
                    sizes[number] = self._settle(file, session, number)
        return sizes

    def append(self, session: str, segment: int, offset: int, body: bytes) -> StoredSegment:
        """Append a batch and sync it to the disk before returning.

        Raises NotFoundError if ``session`` is not an id, and RefusedError for a batch that is refused.
        """
        folder = self._folder(session)
        if not 0 <= segment <= MAX_SEGMENT or offset < 0:
            raise RefusedError(400, "A segment is a number from 0 to 9999 and an offset is not negative.")
        limit = MAX_SEGMENT_BYTES if segment else MAX_META_BYTES
        if len(body) > MAX_BODY_BYTES or offset + len(body) > limit:
            raise RefusedError(413, "A batch has at most 1 MiB, a segment at most 32 MB, and meta.json at most 128 KiB.")
        self._make(folder)
        path = folder / (segment_name(segment) if segment else "meta.json")
        fresh, ours = not path.exists(), is_pushed(folder)
        if fresh and not ours:
            return StoredSegment(0, agreed=False)
        with _open_locked(path, create=fresh) as file:
            size = self._settle(file, session, segment)
            if offset + len(body) <= size:
                return StoredSegment(size, agreed=True)
            if offset != size or not ours:  # A session that is sampled on this host is written only by its sampler.
                return StoredSegment(size, agreed=False)
            self._check_quota(len(body), int(size == 0))
            self._write(file, size, body)
        if fresh:
            _sync_folder(folder)
        return StoredSegment(size + len(body), agreed=True)

    def note_clock(self, session: str, offset_ns: int) -> None:
        """Store how far the sender's clock is behind this one (server minus client), if it has changed."""
        marker = self._folder(session) / MARKER
        stored_offset = clock_offset_ns(marker.parent)
        if marker.exists() and (stored_offset is None or abs(stored_offset - offset_ns) > CLOCK_MOVED_NS):
            write_atomically(marker, with_checksum(json.dumps({"clock_offset_ns": offset_ns}, indent=2).encode()))

    def _folder(self, session: str) -> Path:
        if not is_session_id(session):
            raise NotFoundError("This is not a session id.")
        return self.live / session

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if self._count() >= CROWDED:
            self._remove_silent(0)
        if self._count() >= MAX_SESSIONS:
            self._remove_silent(LITTLE_BYTES)
        if self._count() >= MAX_SESSIONS:
            raise RefusedError(507, NO_ROOM)
        # The marker is written first, so that no reader sees the folder without it.
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=self.live))
        write_atomically(draft / MARKER, b"{}")
        _sync_folder(draft)
        try:
            draft.rename(folder)
        except OSError:  # another request was first
            shutil.rmtree(draft, ignore_errors=True)
        _sync_folder(self.live)

    def _check_quota(self, more_bytes: int, more_files: int) -> None:
        """Count a batch; raise RefusedError if it exceeds the limits of all pushed sessions."""
        if not self._has_room(more_bytes, more_files) and time.monotonic() - self._counted >= RECOUNT_SECONDS:
            self._pushed, self._counted = self._on_disk(), time.monotonic()
        if not self._has_room(more_bytes, more_files):
            raise RefusedError(507, NO_ROOM)
        self._pushed = self._pushed[0] + more_bytes, self._pushed[1] + more_files

    def _has_room(self, more_bytes: int, more_files: int) -> bool:
        return self._pushed[0] + more_bytes <= MAX_PUSHED_BYTES and self._pushed[1] + more_files <= MAX_PUSHED_SEGMENTS

    def _on_disk(self) -> tuple[float, float]:
        """Return the bytes and the files of all pushed sessions."""
        sizes = []
        for folder in self.live.iterdir():
            with contextlib.suppress(OSError):  # The session was deleted meanwhile, so it has no files.
                sizes += [entry.stat().st_size for entry in os.scandir(folder)] if is_pushed(folder) else []
        return sum(sizes), len(sizes)

    def _count(self) -> int:
        return sum(1 for _ in self.live.iterdir())

    def _remove_silent(self, most_bytes: int) -> None:
        """Remove silent pushed sessions with at most ``most_bytes`` of samples.

        Otherwise a flood of such sessions would block later samplers.
        """
        for folder in self.live.iterdir():
            with contextlib.suppress(OSError):
                if is_pushed(folder) and _is_silent(folder, most_bytes):
                    shutil.rmtree(folder)

    def _settle(self, file: int, session: str, segment: int) -> int:
        """Return the size of a segment.

        At the first call in this process, remove an incomplete last line, which a power failure may leave, and sync the file.
        """
        size = os.fstat(file).st_size
        if (session, segment) in self._settled:
            return size
        if segment and size and (self.live / session / MARKER).exists():
            whole = _whole_lines(file, size)
            if whole < size:
                os.ftruncate(file, whole)
                size = whole
        os.fsync(file)
        self._settled.add((session, segment))
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


def _is_silent(folder: Path, most_bytes: int) -> bool:
    """Return whether a session received nothing for a while and has at most ``most_bytes`` of samples.

    It reads no more files than needed.
    """
    since = time.time() - EMPTY_SECONDS
    if folder.stat().st_mtime > since:
        return False
    size = 0
    for path in folder.glob("samples-*"):
        file = path.stat()
        size += file.st_size
        if file.st_mtime > since or size > most_bytes:
            return False
    return True


def is_pushed(folder: Path) -> bool:
    """Return whether a session was pushed, and not written by a sampler on this host."""
    return (folder / MARKER).exists()


def clock_offset_ns(folder: Path) -> int | None:
    """Return how far the sender's clock is behind this host's (server minus client); None if unknown."""
    try:
        value = json.loads(without_checksum((folder / MARKER).read_bytes())).get("clock_offset_ns")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, int) else None


def _whole_lines(file: int, size: int) -> int:
    """Return the size up to the last line with a correct checksum.

    Only the last TAIL_BYTES are searched. If they contain no such line and the file is larger, return the whole size.
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
    """Open a file for appending, with an exclusive lock that other servers on the same folder respect too."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0), 0o600)
    try:
        with held(file):
            yield file
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
