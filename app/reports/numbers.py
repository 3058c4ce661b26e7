"""A run's readings as lines of a report; each reason for a missing value appears only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons import audit, changes
from sawtooth.ingest.loop.step_boundary import NO_OPTIMIZER

NO_VALUE = "no value"
# Values that need not be shown: no exposed communication, no unknown part, all FLOPs counted, no sampled clock.
UNINFORMATIVE_VALUES = {
    "mfu_factor_clock": 1.0,
    "exposed_comm_share": 0.0,
    "tensor_core_unknown_share": 0.0,
    "flop_coverage": 1.0,
}
# Readings that repeat another reading: its complement, or the same value for most runs.
COMPLEMENTS = {"gpu_idle_share": "gpu_busy_share"}
OFTEN_EQUAL = {"hfu": "mfu", "mfu_at_dtype": "mfu"}


def busy_of_run(result: RunResult) -> str | None:
    """Return the GPU's busy share of the run's step, as in the headline, or None."""
    share = busy_share_of_best(result.lead) if result.lead is not None and result.lead.ledger else None
    return fmt.share(share) if share is not None else None


def what_a_step_is(result: RunResult) -> str | None:
    """Return what counts as a step of a loop without an optimizer, as a sentence; None for other loops."""
    all_evidence = result.lead.best.evidence if result.lead is not None else ()
    notes = (*result.metrics["best_step_time_ms"].notes, *(note for evidence in all_evidence for note in evidence.notes))
    return next((note for note in notes if note.startswith(NO_OPTIMIZER)), None)


def remarks(result: RunResult) -> list[str]:
    """Return the recorder's remarks about the training: a failure, several processes, a long pause."""
    failure = result.manifest.failure
    return [*([failure] if failure else []), *result.manifest.remarks]


def informative(result: RunResult) -> list[str]:
    """Return the keys of the readings that tell more than the other readings."""

    def is_informative(key: str) -> bool:
        value = result.metrics[key].value
        if key in OFTEN_EQUAL:
            other = OFTEN_EQUAL[key]
            return fmt.reading(key, result.metrics[key]) != fmt.reading(other, result.metrics[other])
        if key == "mfu_factor_busy":
            return fmt.reading(key, result.metrics[key]) != busy_of_run(result)
        is_complement = key in COMPLEMENTS and result.metrics[COMPLEMENTS[key]].value is not None
        return not is_complement and (key not in UNINFORMATIVE_VALUES or value != UNINFORMATIVE_VALUES[key])

    return [key for key in METRICS if is_informative(key)]


def values(result: RunResult, keys: Iterable[str] = METRICS) -> list[tuple[str, str, str]]:
    """Return label, value and remark of each known reading of ``keys``, the run's step time first.

    The remark is the trust with a reason, or why a value is above 100 %. A repeated reason refers to the first reading with it.
    """
    rows = []
    first: dict[str, str] = {}  # By note: the label of the first reading that has it.
    for key in sorted(keys, key=lambda key: key != "best_step_time_ms"):
        reading = result.metrics[key]
        if reading.value is not None:
            shown_value = audit.step_time(result) if key == "best_step_time_ms" else fmt.reading(key, reading)
            rows.append((changes.label(key), shown_value, _remark(key, reading, first)))
    return rows


def _remark(key: str, reading: Reading, first: dict[str, str]) -> str:
    note = next(iter(reading.notes), "")
    if reading.trust == "ok":
        is_above_one = METRICS[key].unit == "share" and (reading.value or 0.0) > 1
        return note if is_above_one else ""
    if reading.bound is not None:
        return note
    if not note:
        return reading.trust
    label = changes.label(key)
    first_label = first.setdefault(note, label)
    return f"{reading.trust}: {note if first_label == label else f'see {first_label}'}"


def missing(result: RunResult) -> list[tuple[str, str]]:
    """Return the labels of readings that are not known, by reason.

    Readings of a run without GPU work are only counted, with the most frequent reason. Telemetry readings with another reason are
    listed after them.
    """
    absent = [(key, reading.why_missing or "") for key in METRICS if (reading := result.metrics[key]).value is None]
    if result.lead is not None:
        labels: dict[str, list[str]] = {}
        for key, reason in absent:
            labels.setdefault(reason, []).append(changes.label(key))
        return [(", ".join(names), reason) for reason, names in labels.items()]
    if not absent:
        return []
    [(main_reason, _)] = Counter(reason for _, reason in absent).most_common(1)
    other_reasons = [
        (changes.label(key), reason) for key, reason in absent if METRICS[key].from_telemetry and reason != main_reason
    ]
    count = len(absent) - len(other_reasons)
    label = f"All {count} numbers" if count == len(METRICS) else f"The {count} other numbers"
    return [(label, main_reason), *other_reasons]


def without_repeated_reasons(rows: list[tuple[str, str]], reasons: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return ``rows`` of label and value with NO_VALUE instead of each reason in ``reasons``."""
    printed = {reason for _, reason in reasons}
    return [(label, NO_VALUE if value in printed else value) for label, value in rows]
