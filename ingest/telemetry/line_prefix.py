"""Prefixes that log collectors put before each line of a printed log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sawtooth.ingest.errors import ImportDiagnostic, SourceError, as_shown
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables

_TIME = rb"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
PREFIXES = tuple(
    re.compile(prefix)
    for prefix in (
        _TIME + rb" std(?:out|err) [FP] ",  # Kubernetes' files of containers
        rb"\[?" + _TIME + rb"\]? ",  # kubectl logs --timestamps, docker logs -t, ts
        rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:(?P<source>\S+ [^\s\[]+)(?:\[\d+\])?: )?",  # journald and syslog, ts
        rb" *(?P<source>\d+): ",  # srun --label
        rb"(?P<source>[\w.-]+) *\| ",  # docker compose logs
        rb"\[(?P<source>pod/[^\s\]]+)\] ",  # kubectl logs --prefix
        rb"(?P<source>[a-z][a-z0-9.-]*-[a-z0-9]+ [a-z][a-z0-9-]*) ",  # stern: pod and container
    )
)
CHECKED_LINES = 20  # Each of the first lines, up to this number, must have the prefix.
# The end of the note about the prefix, by whether the prefix has a time that the reader can use.
TIME_USE = {True: ", and its time is used if the lines have no time", False: ""}
MIN_LINES = 2  # The beginning of a single line may match by chance.


def find_prefix(head: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern of the prefix that all of the first lines have; None without such a prefix."""
    first_lines = [line for line in head.split(b"\n")[:CHECKED_LINES] if line.strip()]
    if len(first_lines) < MIN_LINES:
        return None
    return next((prefix for prefix in PREFIXES if all(prefix.match(line) for line in first_lines)), None)


def reader_without_prefix(reader: Reader, prefix: re.Pattern[bytes]) -> Reader:
    """Return ``reader`` for lines that begin with ``prefix``.

    ``read`` of the returned reader raises SourceError if the lines come from several hosts or tasks, because their GPUs have equal numbers.
    """

    def read(lines: Iterator[bytes]) -> TelemetryTables:
        dated = reader.takes_dates and "time" in prefix.groupindex
        telemetry = reader.read(_lines_without(prefix, lines, dated))
        sentence = f"Each line begins with the prefix of a log collector. The prefix was left out{TIME_USE[dated]}."
        telemetry.diagnostics.append(ImportDiagnostic("prefix_left_out", "info", sentence))
        return telemetry

    return replace(reader, read=read)


def prefix_end(prefix: re.Pattern[bytes], line: bytes) -> int:
    """Return the position after the prefix of ``line``; 0 without a prefix."""
    match = prefix.match(line)
    return match.end() if match else 0


def _lines_without(prefix: re.Pattern[bytes], lines: Iterator[bytes], dated: bool) -> Iterator[bytes]:
    """Yield the lines without ``prefix``.

    If ``dated``, each new time in the prefix is yielded as a line before the line.
    """
    first_place: bytes | None = None
    last_time: bytes | None = None
    for line in lines:
        match = prefix.match(line)
        place = match.groupdict().get("source") if match else None
        if place is not None and first_place is not None and place != first_place:
            names = " and ".join(as_shown(name.decode(errors="replace")) for name in (first_place, place))
            raise SourceError(
                "E-TYPE",
                f"The lines of this log come from several places ({names}), each with its own GPUs. "
                "Filter the log by the beginning of its lines, and give one file for each place.",
            )
        first_place = place or first_place
        if dated and match and match["time"] != last_time:
            yield (last_time := match["time"])
        yield line[match.end() :] if match else line
