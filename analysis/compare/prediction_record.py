"""The record of past predictions that a later run tested, stored in the data folder."""

from __future__ import annotations

import contextlib
import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

log = logging.getLogger("sawtooth")
FILE = "predictions.json"
MAX_PAIRS = 2000  # Largest number of pairs of runs in the file, which a page reads completely.
FOLLOWS = "after="  # The beginning of a tag: this run made the change that was advised for the named run.


class _Tested(msgspec.Struct, frozen=True):
    rules: tuple[str, ...]
    predicted_ms: float
    measured_ms: float
    low_ms: float | None = None
    high_ms: float | None = None


@dataclass(frozen=True)
class Record:
    """How well one rule predicted: the pairs of runs that tested it, and its relative errors.

    ``median_error`` and ``worst_error`` are relative errors of the predicted step times. ``bounded`` predictions had an interval, and
    ``covered`` of them contained the measured step time.
    """

    rule: str
    pairs: int
    median_error: float
    worst_error: float
    bounded: int = 0
    covered: int = 0


def run_before(manifest: Manifest, manifests: Sequence[Manifest]) -> Manifest | None:
    """Return the run that ``manifest`` follows by its tag ``after=NAME`` (or id), or None without one.

    ``manifests`` are newest first. If several runs have that name, the newest is returned.
    """
    run_ids = {tag.removeprefix(FOLLOWS) for tag in manifest.tags if tag.startswith(FOLLOWS)}
    return next((m for m in manifests if m.id != manifest.id and {m.id, m.name} & run_ids), None)


def remember(folder: DataFolder, run_a: str, run_b: str, prediction: Prediction) -> None:
    """Store the predicted and the measured step time of two runs (given by id), once for each pair.

    Does nothing if B does not test the prediction.
    """
    if not prediction.is_tested:
        return
    pairs = _pairs(folder)
    record = _Tested(prediction.rules, prediction.predicted_ms, prediction.measured_ms, prediction.low_ms, prediction.high_ms)
    if pairs.get(key := f"{run_a} {run_b}") == record:
        return
    newest = [*((k, v) for k, v in pairs.items() if k != key), (key, record)][-MAX_PAIRS:]
    with contextlib.suppress(OSError):  # A full disk or a read-only folder must not make the comparison fail.
        write_atomically(folder.root / FILE, with_checksum(msgspec.json.format(msgspec.json.encode(dict(newest)), indent=1)))


def records(folder: DataFolder) -> list[Record]:
    """Return how well each rule predicted, most tested first.

    Several fixes made at once count for each of their rules.
    """
    by_rule: dict[str, list[_Tested]] = {}
    for record in _pairs(folder).values():
        for rule in record.rules:
            by_rule.setdefault(rule, []).append(record)
    rows = []
    for rule, pairs in by_rule.items():
        errors = [abs(pair.predicted_ms / pair.measured_ms - 1) for pair in pairs]
        is_inside = [pair.low_ms <= pair.measured_ms <= pair.high_ms for pair in pairs if pair.low_ms and pair.high_ms]
        rows.append(Record(rule, len(pairs), statistics.median(errors), max(errors), len(is_inside), sum(is_inside)))
    return sorted(rows, key=lambda record: (-record.pairs, record.rule))


def _pairs(folder: DataFolder) -> dict[str, _Tested]:
    try:
        pairs = from_json(without_checksum((folder.root / FILE).read_bytes()), dict[str, _Tested])
    except OSError:
        return {}
    except (ValueError, RecursionError):  # The errors of msgspec are ValueErrors.
        log.warning("%s in the data folder is damaged: the record of past predictions starts again from zero.", FILE)
        return {}
    return {key: record for key, record in pairs.items() if record.measured_ms > 0}
