"""CSV tables of amd-smi, rocm-smi, xpu-smi, nvitop and scripts, read by their titles."""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.ingest.telemetry.delimited import read_delimited
from sawtooth.ingest.telemetry.find_header import find_header, rows_below, text_of, time_position
from sawtooth.ingest.telemetry.formats import wandb_events
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables

NAME = "table of GPU samples"


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines is a header with a known quantity and a time or a GPU."""
    if head.lstrip()[:1] in (b"{", b"["):
        return False
    lines = head.split(b"\n")
    header, _ = find_header(text_of(iter(lines)))
    if header is None or not header.has_quantity or header.by_nvidia_smi:
        return False
    has_time_or_device = header.time is not None or header.device is not None
    if not has_time_or_device and time_position(header, rows_below(header, lines)) is None:
        return False
    return not wandb_events.sniff(head)


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows. Rows without times are counted from 0."""
    return read_delimited(lines, NAME)


READER = Reader(NAME, sniff, read)
