"""Dispatch times measured on this machine's GPUs by `sawtooth calibrate`, by the GPU's name."""

from __future__ import annotations

import contextlib
import logging

import msgspec

from sawtooth.analysis.knowledge.hardware import Dispatch
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

log = logging.getLogger("sawtooth")
FILE = "calibration.json"
AGAIN = "Run sawtooth calibrate again."
SOURCE = "measured by `sawtooth calibrate` on this machine's {name}"
MAX_US = 10.0  # A file with a larger value was not written by ``calibrate``.


class _CalibrationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dispatch_us: tuple[float, float, float]


def keep(folder: DataFolder, name: str, dispatch_us: tuple[float, float, float]) -> None:
    """Store the dispatch time of a GPU (low, middle, high in µs) and replace an earlier one."""
    rows = msgspec.json.encode({**_rows(folder), name: _CalibrationRow(dispatch_us)})
    write_atomically(folder.root / FILE, with_checksum(msgspec.json.format(rows, indent=2)))


def dispatch_of(folder: DataFolder, name: str | None) -> Dispatch | None:
    """Return the dispatch time measured for the GPU called ``name``; None without a measurement."""
    row = _rows(folder).get(name or "")
    if row is None:
        return None
    low, middle, high = (1000.0 * us for us in row.dispatch_us)
    return Dispatch(middle, low, high, SOURCE.format(name=name))


def calibration_bytes(folder: DataFolder) -> bytes:
    """Return the bytes of the stored file, to detect changes; empty without a file."""
    with contextlib.suppress(OSError):
        return (folder.root / FILE).read_bytes()
    return b""


def _rows(folder: DataFolder) -> dict[str, _CalibrationRow]:
    try:
        rows = from_json(without_checksum(calibration_bytes(folder) or b"{}"), dict[str, _CalibrationRow])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors.
        log.warning("%s in the data folder is damaged, so the GPUs' measured dispatch times are not used. %s", FILE, AGAIN)
        return {}
    return {
        name: row for name, row in rows.items() if 0 <= row.dispatch_us[0] <= row.dispatch_us[1] <= row.dispatch_us[2] <= MAX_US
    }
