"""Prometheus' text format: one or several scrapes of dcgm-exporter and other exporters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.telemetry.formats.prometheus_json import GPU_INFO, find_field, leave_out_split, read_series
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import PrintoutTimes
from sawtooth.ingest.telemetry.table import SampleTable

SCRAPE_INTERVAL_NS = 30_000_000_000  # dcgm-exporter samples every 30 seconds by default.
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(rb"^# (?:HELP|TYPE) [a-zA-Z_:]", re.MULTILINE)
_SAMPLE = re.compile(rb'^[a-zA-Z_:][\w:]*\{\w+="[^\n]*\} [-+\d.eE]+', re.MULTILINE)


def sniff(head: bytes) -> bool:
    """Return whether ``head`` is a scrape in Prometheus' text format."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return first[:1] not in b"{[<" and (_COMMENT.search(first) is not None or _SAMPLE.search(first[:4096]) is not None)


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read all scrapes.

    If samples have no times, a repeated series begins the next scrape. Raises SourceError if no series is known.
    """
    table = SampleTable()
    numbers: dict[tuple[str, str], int] = {}
    unknown: set[str] = set()
    times = PrintoutTimes(table, "The exporter", SCRAPE_INTERVAL_NS)
    scraped_series: set[str] = set()  # The series of the current scrape so far.
    scrape, samples = 0, 0
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").strip()
        if not line or line.startswith("#"):
            continue
        if (match := _LINE.fullmatch(line)) is None:
            if times.set_if_date(line):
                continue
            table.note("line_unreadable", "data_loss", "Lines that are not samples were left out.", example=line)
            continue
        name, labels, value, stamp = match.groups()
        samples += 1
        key = f"{name}{{{labels or ''}}}"
        if stamp is None:
            if key in scraped_series:
                scraped_series.clear()
                scrape += 1
            scraped_series.add(key)
        if find_field(name) is None and name != GPU_INFO:
            unknown.add(name)
            continue
        seconds = times.ns(scrape) / 1e9 if stamp is None else int(stamp) / 1e3
        series: dict[str, Any] = {
            "metric": {"__name__": name, **dict(_LABEL.findall(labels or ""))},
            "values": [[seconds, value]],
        }
        read_series(series, table, numbers, unknown)
    leave_out_split(table)
    if table.is_empty():
        names = ", ".join(sorted(unknown)[:4]) or "no name"
        raise SourceError(
            "E-NOEV",
            f"None of the {samples:,} samples of this scrape has a known GPU quantity. Their names are, for example, {names}. "
            "Scrape dcgm-exporter, nvidia_gpu_exporter, nvitop-exporter or Sawtooth's own exporter.",
        )
    if len({host for host, _ in numbers}) > 1:
        table.host = None
        table.note("several_hosts", "info", "The scrape has several hosts. Their GPUs are numbered one after the other.")
    return table.telemetry()


READER = Reader("Prometheus text", sniff, read, takes_dates=True)
