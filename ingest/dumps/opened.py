"""Read the bytes of a dump, decompressed and up to a limit."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, BinaryIO, cast

from sawtooth.ingest.errors import SourceError

MAX_BYTES = 1 << 30  # This is five times the size of a snapshot with 100,000 events and full C++ stacks (200 MB).
GZIP_MAGIC = b"\x1f\x8b"
HEAD_BYTES = 64 << 10  # Enough to distinguish a dump from a trace.


def read_head(path: Path) -> bytes:
    """Return the first uncompressed bytes of ``path``; b"" if they cannot be read."""
    try:
        with path.open("rb") as file:
            return _reader_of(file).read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""


def read_dump(path: Path) -> bytes:
    """Return the content of ``path``, unpacked if it is gzip.

    Raises SourceError, with the file's name, for an empty, cut or too large file.
    """
    try:
        with path.open("rb") as file:
            data = _reader_of(file).read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _file_error(path, "E-CUT", "This gzip file ends early or is damaged. Copy it again.") from error
    if not data:
        raise _file_error(path, "E-EMPTY", "This file is empty. Copy the dump again after it is written.")
    if len(data) > MAX_BYTES:
        raise _file_error(path, "E-SIZE", f"This file is larger than {MAX_BYTES >> 30} GiB. Record fewer events (max_entries).")
    return data


def _reader_of(file: BinaryIO) -> IO[bytes]:
    """Return a reader of the file's content, unpacked if it is gzip."""
    packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file


def _file_error(path: Path, code: str, sentence: str) -> SourceError:
    error = SourceError(code, sentence)
    error.file = path.name
    return error
