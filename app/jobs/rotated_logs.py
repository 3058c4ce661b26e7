"""Join the pieces of a rotated log (gpu.log, gpu.log.1, gpu.log.2.gz) before they are read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.files import draft_folder
from sawtooth.ingest.source import HEAD_BYTES, Source
from sawtooth.ingest.telemetry.registry import READ_ERRORS, reader_for

NamedFile = tuple[Path, str]  # A file and its display name.
# logrotate appends a number or a date to a name. The number is larger for older pieces.
_PIECE = re.compile(r"(.+?)(?:\.(\d{1,3})|-(\d{8}(?:-\d{2,10})?))?(?:\.gz)?")
MAX_OVERLAP_NS = 2_000_000_000  # Pieces that overlap by more are two logs of one time.


class _Ends(NamedTuple):
    """The first and the last bytes of a piece."""

    head: bytes
    tail: bytes


@contextmanager
def rotations_joined(files: Sequence[NamedFile], place: Path) -> Iterator[tuple[list[NamedFile], list[str]]]:
    """Yield the files, with each rotated log joined into one file, and a notice for each joined log.

    Pieces are joined if one of them has the plain name, and if their times follow each other. The joined file is in ``place``
    until the ``with`` block ends.
    """
    groups = [group for group in _groups(files) if len(group) > 1]
    if not groups:
        yield list(files), []
        return
    whole_files, notices = list(files), []
    with draft_folder(place) as folder:
        for number, group in enumerate(groups):
            target = folder / f"{number}.log"
            if not _write_joined(group, target):
                continue
            shown_name = group[-1][1]
            whole_files[whole_files.index(group[-1])] = (target, shown_name)
            whole_files = [file for file in whole_files if file not in group]
            notices.append(f"{shown_name}: {len(group)} pieces of this rotated log were read as one, the oldest first.")
        yield whole_files, notices


def _groups(files: Sequence[NamedFile]) -> Iterator[list[NamedFile]]:
    """Yield the pieces of each log, the oldest first, if one of them has the log's plain name."""
    by_name: dict[str, list[tuple[tuple[int, str], NamedFile]]] = {}
    for file in files:
        match = _PIECE.fullmatch(file[1])
        if match is not None:
            base, number, date = match.groups()
            age = (0, date) if date else (1, f"{999 - int(number):03}") if number else (2, "")
            by_name.setdefault(base, []).append((age, file))
    for pieces in by_name.values():
        pieces.sort(key=lambda piece: piece[0])
        plain_names = sum(age == (2, "") for age, _ in pieces)
        if plain_names == 1 and len(pieces) > 1:
            yield [file for _, file in pieces]


def _write_joined(group: Sequence[NamedFile], target: Path) -> bool:
    """Write the pieces into ``target`` in their order; return False if they are not one log of samples."""
    ends: list[_Ends] = []
    try:
        with target.open("wb") as file:
            for path, _ in group:
                source, head, tail = Source(path), b"", b""
                with closing(source.pieces(hashed=False)) as pieces:
                    for piece in pieces:
                        file.write(piece)
                        head = (head + piece)[:HEAD_BYTES] if len(head) < HEAD_BYTES else head
                        tail = (tail + piece)[-HEAD_BYTES:]
                if source.damage:
                    return False
                if not tail.endswith(b"\n"):
                    file.write(b"\n")
                ends.append(_Ends(head, tail))
    except (SawtoothError, OSError):
        return False
    first_line = ends[0].head.split(b"\n", 1)[0]
    spans = [_span(piece, first_line) for piece in ends]
    known_spans = [span for span in spans if span is not None]
    if len(known_spans) < len(spans):
        return False
    return all(start >= end - MAX_OVERLAP_NS for (_, end), (start, _) in itertools.pairwise(known_spans))


def _span(piece: _Ends, first_line: bytes) -> tuple[int, int] | None:
    """Return the first and last time of a piece in ns; None if they are not known."""
    first, last = _times(piece.head, first_line), _times(piece.tail.partition(b"\n")[2] or piece.tail, first_line)
    return (min(first), max(last)) if first and last else None


def _times(part: bytes, first_line: bytes) -> list[int]:
    """Return the first and last time of the whole lines of ``part`` in ns; empty if they are not known.

    ``first_line`` may be the header of these lines.
    """
    for text in (part, first_line + b"\n" + part):
        reader = reader_for(text)
        if reader is None:
            continue
        try:
            telemetry = reader.read(iter(text.splitlines()[:-1] if len(part) >= HEAD_BYTES - 1 else text.splitlines()))
        except (*READ_ERRORS, SawtoothError):
            continue
        times = telemetry.columns.get("time_ns", ())
        if telemetry.clock != "unknown" and len(times):
            return [int(min(times)), int(max(times))]
    return []
