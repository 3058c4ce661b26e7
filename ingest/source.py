"""Open a source: detect its container by content, never by file name, decompress it and hash it."""

from __future__ import annotations

import hashlib
import stat
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from isal import isal_zlib

from sawtooth.ingest.errors import SourceError

GZIP_MAGIC = b"\x1f\x8b"
NSIGHT_SUFFIXES = (".nsys-rep", ".nsys-rep.gz", ".qdrep", ".qdrep.gz", ".qdstrm")
NSIGHT_MARKERS = (b"QuadD", b"Nsight Systems")  # A report contains one of these.
NSIGHT_ADVICE = "Export it on a machine with Nsight Systems and use the .sqlite file: nsys export --type sqlite FILE.nsys-rep"
DEFLATE_ERROR: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # isal's stub declares an instance.
GZIP_HEADER_BYTES = 4096  # Room for the file name that gzip stores in its header.
GZIP_TRAILER_BYTES = 8  # A gzip file ends with CRC-32 and size.
READ_BYTES = 128 << 10  # Compressed bytes per read: few enough to lose little of a damaged stream, enough to need few calls.
PIECE_BYTES = 256 << 10  # Size of an uncompressed piece. Readers copy the unread end of a piece together with the next piece.
MAX_PENDING_PIECES = 32  # Number of pieces that may wait for the hash.
HEAD_BYTES = 64 << 10  # Enough to distinguish all formats.
UNPACK_ADVICE = "Unpack it and use the .json or .json.gz inside."
EXPORT_ADVICE = "Export the trace with prof.export_chrome_trace(...)."
READABLE_FILES = "Sawtooth reads torch.profiler traces (.json or .json.gz), SQLite exports of Nsight Systems, and telemetry."

MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive (torch .pt files are zips too)", UNPACK_ADVICE),
    (b"(\xb5/\xfd", "a zstd archive", UNPACK_ADVICE),
    (b"\xfd7zXZ\x00", "an xz archive", UNPACK_ADVICE),
    (b"BZh", "a bzip2 archive", UNPACK_ADVICE),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK_ADVICE),
    (b"\x04\x22\x4d\x18", "an lz4 archive", UNPACK_ADVICE),
    (b"\x89PNG", "a PNG image", READABLE_FILES),
    (b"\xff\xd8\xff", "a JPEG image", READABLE_FILES),
    (b"GIF8", "a GIF image", READABLE_FILES),
    (b"%PDF", "a PDF document", READABLE_FILES),
    (b"\x7fELF", "a program (ELF)", READABLE_FILES),
    (b"MZ", "a Windows program", READABLE_FILES),
    (b"PAR1", "a Parquet file", "Sawtooth never opens Parquet files from elsewhere. Export it as CSV (in pandas: df.to_csv)."),
    (b"ARROW1", "an Arrow file", READABLE_FILES),
    (b"\x89HDF", "an HDF5 file", READABLE_FILES),
    (b"version https://git-lfs", "a Git LFS pointer, not the file it points to", "Run git lfs pull and use the real file."),
    (b"\xff\xfe", "text in UTF-16", "Save it as UTF-8."),
    (b"\xfe\xff", "text in UTF-16", "Save it as UTF-8."),
)


@dataclass(frozen=True)
class Limits:
    """The limits of one source. A source that exceeds one of them is refused."""

    uncompressed_bytes: int = 64 << 30  # The largest traces that people record on purpose have some GB.
    ratio: int = 400  # The most repetitive real traces compress 344:1. Zeros compress 1029:1.
    ratio_from_bytes: int = 256 << 20  # Below this size a bomb does no harm, so the ratio is not checked.
    event_bytes: int = 4 << 20  # Size of one event. Kineto's largest events have stacks of some 100 KB.
    metadata_bytes: int = 32 << 20  # Size of everything except traceEvents.
    name_length: int = 1 << 15  # Characters of one name. Names of real ATen kernels have up to some 6,000.
    distinct_names: int = 1_000_000  # More names would need too much memory.
    names_length: int = 256 << 20  # Characters of all different names together, because all these names are in memory.


def wrong_type_error(what: str, advice: str) -> SourceError:
    """Return the error for a file of another type."""
    return SourceError("E-TYPE", f"This is {what}, not a trace or telemetry that Sawtooth reads. {advice}")


def refuse_foreign(head: bytes, name: str = "") -> None:
    """Raise SourceError if ``head`` (the first uncompressed bytes) has a type that Sawtooth does not read.

    Reports of Nsight Systems, whose format is not published, are recognized by ``name`` too.
    """
    binary = b"\x00" in head[:1024] and not head.startswith((b"PK", b"SQLite"))
    if binary and (name.lower().endswith(NSIGHT_SUFFIXES) or any(sign in head[:8192] for sign in NSIGHT_MARKERS)):
        raise wrong_type_error("a report of Nsight Systems", NSIGHT_ADVICE)
    for magic, what, advice in MAGIC:
        if head.startswith(magic):
            raise wrong_type_error(what, advice) if "UTF" not in what else SourceError("E-ENC", f"This is {what}. {advice}")
    if head[8:12] == b"DUCK":
        raise wrong_type_error(
            "a DuckDB database", "Use the trace it was made from, because Sawtooth never opens databases from elsewhere."
        )
    if len(head) > 262 and head[257:262] == b"ustar":
        raise wrong_type_error("a tar archive", UNPACK_ADVICE)
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        raise wrong_type_error(
            "a Python pickle, which could run code when opened",
            f"{EXPORT_ADVICE} A dump of NCCL's flight recorder: sawtooth collectives FILE.",
        )
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head")):
        raise wrong_type_error("a web page (a login page saved by mistake?)", "Download the file itself.")
    if start.startswith((b"<?xml", b"<svg")) and b"nvidia_smi_log" not in start:
        raise wrong_type_error("an XML document", READABLE_FILES)
    if b"\x00" in head[:4] and head[:4] != b"\x00\x00\x00\x00":
        if any(head[i] in b"[{" for i in range(min(4, len(head)))):
            raise SourceError("E-ENC", "This is text in UTF-16 or UTF-32. Save it as UTF-8.")
        raise wrong_type_error("a binary file", READABLE_FILES)


class _Hash:
    """SHA-256 of the bytes of one source, on another thread inside a ``with`` block.

    The ``with`` block must be in a function. The garbage collector may close a generator in any thread at any time, and waiting for a thread
    during this close can block forever.
    """

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        self._thread = ThreadPoolExecutor(1, "hash")
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()

    def update(self, piece: bytes) -> None:
        """Add ``piece`` to the hashed bytes."""
        if self._thread is None:
            self._sha.update(piece)
            return
        self._pending.append(self._thread.submit(self._sha.update, piece))
        if len(self._pending) > MAX_PENDING_PIECES:
            self._pending.popleft().result()

    def hexdigest(self) -> str:
        """Return the hash of all added bytes."""
        while self._pending:
            self._pending.popleft().result()
        return self._sha.hexdigest()


class Source:
    """One source. First iterate over ``pieces``, then read ``id`` and ``damage``."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self.limits = limits or Limits()
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # A pipe can be read only once and may never end, as /dev/zero does.
            raise SourceError(
                "E-TYPE", "This is a folder, a pipe or a device, not a file. Write its content to a file and use that."
            )
        self.total_bytes = status.st_size
        self.read_bytes = 0
        self.uncompressed_bytes = 0
        self.members = 0  # Gzip members that were begun.
        self.damage: list[str] = []  # Any of gzip_truncated, gzip_damaged, gzip_crc and gzip_tail.
        self._hash = _Hash()
        with path.open("rb") as file:
            start = file.read(2)
        if not start:
            raise SourceError(
                "E-EMPTY",
                "The file is empty (0 bytes). The profiler or the copy was stopped before it wrote anything. Copy or record it again.",
            )
        self.gzipped = start == GZIP_MAGIC

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the uncompressed bytes that were read so far."""
        return self._hash.hexdigest()[:16]

    def hash_in_parallel(self) -> _Hash:
        """Return a context manager. While its block reads, the bytes are hashed on another core."""
        return self._hash

    @property
    def single_member(self) -> bool:
        """Whether the file is one undamaged gzip member."""
        return self.gzipped and self.members == 1 and not self.damage

    def head(self) -> bytes:
        """Return the first uncompressed bytes without consuming them."""
        second_source = Source(self.path, self.limits)
        head = b""
        with closing(second_source.pieces(hashed=False)) as pieces:
            for piece in pieces:
                head += piece
                if len(head) >= HEAD_BYTES:
                    break
        if not head:
            if not second_source.damage:
                raise SourceError("E-EMPTY", "The gzip file is empty: it unpacks to 0 bytes. Copy or record it again.")
            raise SourceError(
                "E-TRUNC",
                f"The gzip file is cut off or damaged at its beginning: none of its {self.total_bytes:,} bytes can be unpacked. Copy or record it again.",
            )
        if head.startswith(GZIP_MAGIC):
            raise wrong_type_error("gzip inside gzip", "Unpack it once.")
        return head[:HEAD_BYTES]

    def pieces(self, *, hashed: bool = True) -> Generator[bytes]:
        """Yield the uncompressed bytes in order, up to the first damage, which is noted in ``damage``.

        A caller that stops early must close the generator. Without ``hashed``, the bytes are not part of ``id``.
        """
        with self.path.open("rb") as file:
            for piece in self._inflate(file) if self.gzipped else self._plain(file):
                self.uncompressed_bytes += len(piece)
                self._check_size()
                if hashed:
                    self._hash.update(piece)
                yield piece

    def _plain(self, file: BinaryIO) -> Generator[bytes]:
        while piece := file.read(PIECE_BYTES):
            self.read_bytes += len(piece)
            yield piece

    def _inflate(self, file: BinaryIO) -> Generator[bytes]:
        data = self._read(file)
        while data:
            if self.members:  # Zero padding between and after members is legal.
                data = data.lstrip(b"\x00")
                if not data:
                    data = self._read(file)
                    continue
            body = self._after_header(file, data)
            if body is None:
                self.damage.append("gzip_tail" if self.members else "gzip_truncated")
                while self._read(file):  # Reading counts the bytes of the rest.
                    pass
                return
            data = yield from self._member(file, body)

    def _after_header(self, file: BinaryIO, data: bytes) -> bytes | None:
        """Return the data after the gzip header in ``data``; None without a complete header."""
        while len(data) < GZIP_HEADER_BYTES and (more := self._read(file)):
            data += more
        if len(data) < 10 or not data.startswith(GZIP_MAGIC) or data[2] != 8:
            return None
        flags, position = data[3], 10
        if flags & 4:
            position += 2 + int.from_bytes(data[position : position + 2], "little")
        for flag in (8, 16):  # File name and comment end with a zero byte.
            if flags & flag:
                position = data.find(b"\x00", position) + 1 or len(data)
        if flags & 2:
            position += 2
        return data[position:] if position <= len(data) else None

    def _member(self, file: BinaryIO, data: bytes) -> Generator[bytes, None, bytes]:
        """Inflate one member, which begins with ``data``; return the data that follows the member."""
        inflate = isal_zlib.decompressobj(wbits=-15)
        self.members += 1
        crc = size = 0
        while not inflate.eof:
            try:
                piece = inflate.decompress(data, PIECE_BYTES)
            except DEFLATE_ERROR:
                self.damage.append("gzip_damaged")
                return b""
            if piece:
                crc, size = isal_zlib.crc32(piece, crc), size + len(piece)
                yield piece
            if not inflate.eof:
                data = inflate.unconsumed_tail or self._read(file)
                if not data and not piece:
                    self.damage.append("gzip_truncated")
                    return b""
        rest = inflate.unused_data
        while len(rest) < GZIP_TRAILER_BYTES and (more := self._read(file)):
            rest += more
        if rest[:GZIP_TRAILER_BYTES] != crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"):
            self.damage.append("gzip_crc" if len(rest) >= GZIP_TRAILER_BYTES else "gzip_truncated")
        return rest[GZIP_TRAILER_BYTES:] or self._read(file)

    def _read(self, file: BinaryIO) -> bytes:
        data = file.read(READ_BYTES)
        self.read_bytes += len(data)
        return data

    def _check_size(self) -> None:
        size, limits = self.uncompressed_bytes, self.limits
        if size > limits.uncompressed_bytes:
            raise SourceError(
                "E-SIZE", f"The trace is larger than {limits.uncompressed_bytes >> 30} GB uncompressed. Profile fewer steps."
            )
        if self.gzipped and size > limits.ratio_from_bytes and size > limits.ratio * self.read_bytes:
            raise SourceError(
                "E-BOMB",
                f"The file unpacks to more than {limits.ratio} times its size, which no trace does. It looks like a gzip bomb. If it is a trace, unpack it first.",
            )
