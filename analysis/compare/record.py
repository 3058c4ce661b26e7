"""How right predictions have been here: those that a later run put to the test, kept in the data folder."""

from __future__ import annotations

import contextlib
import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.seals import sealed, unsealed
from sawtooth.ingest.typed import from_json

log = logging.getLogger("sawtooth")
FILE = "predictions.json"
MOST = 2000  # pairs: a file that a page reads at once
FOLLOWS = "after="  # a tag: this run has the change that the run named made advisable


class _Tested(msgspec.Struct, frozen=True):
    rules: tuple[str, ...]
    predicted_ms: float
    measured_ms: float


@dataclass(frozen=True)
class Record:
    """How a rule did: in how many pairs of runs it was tested, and the median and largest relative error of its predicted step times."""

    rule: str
    pairs: int
    median_error: float
    worst_error: float


def follows(manifest: Manifest, manifests: Sequence[Manifest]) -> Manifest | None:
    """Return the run whose change ``manifest`` made, by its tag ``after=NAME`` (or id), the newest of that name; None without one."""
    named = {tag.removeprefix(FOLLOWS) for tag in manifest.tags if tag.startswith(FOLLOWS)}
    return next((m for m in manifests if m.id != manifest.id and {m.id, m.name} & named), None)


def remember(folder: DataFolder, before: str, after: str, prediction: Prediction) -> None:
    """Keep what the change between two runs (their ids) was predicted to bring and brought, once for each pair; nothing where B differs in more."""
    if prediction.beside:
        return
    pairs = _pairs(folder)
    tested = _Tested(prediction.rules, prediction.predicted_ms, prediction.measured_ms)
    if pairs.get(key := f"{before} {after}") == tested:
        return
    newest = [*((k, v) for k, v in pairs.items() if k != key), (key, tested)][-MOST:]
    with contextlib.suppress(OSError):  # a full disk or a folder that cannot be written costs the record, not the comparison
        write_atomically(folder.root / FILE, sealed(msgspec.json.format(msgspec.json.encode(dict(newest)), indent=1)))


def records(folder: DataFolder) -> list[Record]:
    """Return how each rule did, most tested first. Several fixes made at once count for each of their rules."""
    errors: dict[str, list[float]] = {}
    for tested in _pairs(folder).values():
        for rule in tested.rules:
            errors.setdefault(rule, []).append(abs(tested.predicted_ms / tested.measured_ms - 1))
    rows = [Record(rule, len(each), statistics.median(each), max(each)) for rule, each in errors.items()]
    return sorted(rows, key=lambda record: (-record.pairs, record.rule))


def _pairs(folder: DataFolder) -> dict[str, _Tested]:
    try:
        pairs = from_json(unsealed((folder.root / FILE).read_bytes()), dict[str, _Tested])
    except OSError:
        return {}
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        log.warning("%s in the data folder is damaged: how right predictions have been here starts anew.", FILE)
        return {}
    return {key: tested for key, tested in pairs.items() if tested.measured_ms > 0}
