"""Find the GPU that a row of a table describes, by host, UUID and index."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from sawtooth.ingest.telemetry.headers import Header
from sawtooth.ingest.telemetry.table import MAX_DEVICES, SampleTable
from sawtooth.ingest.telemetry.values import number

_NUMBER_AT_END = re.compile(r"(?:(?:gpu|card|cuda|nvidia|device|npu|renderd?)[ :_#-]*)?(\d+)", re.IGNORECASE)
BLANKS = ("", "-", "n/a", "na", "none", "null", "nan", "unknown")


def device_position(header: Header, rows: Sequence[Sequence[str]]) -> int | None:
    """Return the position of the column that identifies the GPU of a row; None without such a column.

    If several columns may identify the GPU (``gpu`` and ``index``), the column with the fewest repeated pairs of time and GPU is used.
    Of two columns with equally many repeated pairs, the column with fewer different cells is used, because the other may number the rows.
    """
    if len(header.devices) < 2 or header.time is None:
        return next(iter(header.devices), None)
    time, host = header.time, header.host
    whole = [row for row in rows if len(row) == len(header.titles)]

    def rank(position: int) -> tuple[int, int]:
        keys = [(row[time], row[host] if host is not None else "", row[position].strip()) for row in whole]
        return len(keys) - len(set(keys)), len({cell for *_, cell in keys})

    return min(header.devices, key=rank)


class DeviceNumbers:
    """Numbers of the GPUs in a table. The first row of each GPU describes it."""

    def __init__(self, header: Header, table: SampleTable, rows: Sequence[Sequence[str]]) -> None:
        self.header, self.table = header, table
        self.position = device_position(header, rows)
        self.known: dict[tuple[str, ...], int | None] = {}  # The GPU's number, by the cells of (host, GPU, UUID).
        self.devices: dict[tuple[str, str], int] = {}  # The GPU's number, by (host, UUID or index).

    def numbers(self, rows: Sequence[Sequence[str]], cells_of: Sequence[Sequence[str]]) -> list[int | None]:
        """Return the number of the GPU that each row describes; None for a row that identifies no GPU."""
        positions = (self.header.host, self.position, self.header.uuid)
        keys = zip(*(cells_of[position] if position is not None else ("",) * len(rows) for position in positions), strict=True)
        earlier = self.known
        return [earlier[key] if key in earlier else self._first(key, row) for key, row in zip(keys, rows, strict=True)]

    def _first(self, key: tuple[str, ...], row: Sequence[str]) -> int | None:
        host, index, uuid = (text.strip() for text in key)
        self.known[key] = self._number(host, index, uuid, row)
        return self.known[key]

    def _number(self, host: str, index: str, uuid: str, row: Sequence[str]) -> int | None:
        uuid = "" if uuid.strip("[]").lower() in BLANKS else uuid
        key = (host, uuid or index)
        if key not in self.devices:
            match = _NUMBER_AT_END.fullmatch(index)
            if match is None and (index[:1] == "-" or not (index or uuid or self.position is None)):
                return None
            own_number = int(match.group(1)) if match else len(self.devices)
            if own_number >= MAX_DEVICES or len(self.devices) >= MAX_DEVICES:
                return None
            used_numbers = set(self.devices.values())
            device = (
                own_number if own_number not in used_numbers else next(n for n in itertools.count() if n not in used_numbers)
            )
            self.devices[key] = device
            self.table.places[device] = (host, index or uuid)
            self._describe(device, host, uuid, row)
        return self.devices[key]

    def _describe(self, device: int, host: str, uuid: str, row: Sequence[str]) -> None:
        header = self.header

        def cell(position: int | None) -> str | None:
            text = row[position].strip() if position is not None else ""
            return text if text and text[0] not in "[-" else None

        total = next((c for c in header.columns if c.column == "mem_total_bytes"), None)
        memory = number(row[total.position], total.factor) if total is not None else None
        self.table.devices[device] = {
            "name": cell(header.name) or header.maker,
            "uuid": uuid if uuid and ":" not in uuid else None,
            "memory_bytes": int(memory) if memory is not None else None,
        }
        self.table.driver_version = self.table.driver_version or cell(header.driver)
        hosts = {known for known, _ in self.devices if known}
        self.table.host = host if len(hosts) == 1 else None
        if len(hosts) > 1 and "several_hosts" not in self.table.diagnostics:
            note = "The file has several hosts. Their GPUs are numbered one after the other."
            self.table.note("several_hosts", "info", note)
