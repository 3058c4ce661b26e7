"""A run's readings as lines of a report; each reason for a missing value appears only once."""

from __future__ import annotations

from collections import Counter

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons import changes
from sawtooth.ingest.loop.step_boundary import NO_OPTIMIZER

NO_VALUE = "no value"


def what_a_step_is(result: RunResult) -> str | None:
    """Return the sentence that says what counts as a step of a loop without an optimizer; else None."""
    all_evidence = result.lead.best.evidence if result.lead is not None else ()
    notes = (*result.metrics["best_step_time_ms"].notes, *(note for evidence in all_evidence for note in evidence.notes))
    return next((note for note in notes if note.startswith(NO_OPTIMIZER)), None)


def remarks(result: RunResult) -> list[str]:
    """Return the recorder's remarks about the training: a failure, several processes, a long pause."""
    failure = result.manifest.failure
    return [*([failure] if failure else []), *result.manifest.remarks]


def values(result: RunResult) -> list[tuple[str, str, str]]:
    """Return label, value and remark of each known reading, the run's step time first.

    The remark is its trust with the reason, or why it is above 100 %. A reason is given once; later readings refer to it.
    """
    rows = []
    first: dict[str, str] = {}  # the label of the reading that a note was first given for
    for key in sorted(METRICS, key=lambda key: key != "best_step_time_ms"):
        reading = result.metrics[key]
        if reading.value is not None:
            rows.append((changes.label(key), fmt.reading(key, reading), _remark(key, reading, first)))
    return rows


def _remark(key: str, reading: Reading, first: dict[str, str]) -> str:
    note = next(iter(reading.notes), "")
    if reading.trust == "ok":
        above = METRICS[key].unit == "share" and (reading.value or 0.0) > 1
        return " ".join(reading.notes) if above else ""
    earliest = first.setdefault(note, changes.label(key)) if note else changes.label(key)
    return f"{reading.trust}: {note if earliest == changes.label(key) else f'as for {earliest}'}".removesuffix(": ")


def missing(result: RunResult) -> list[tuple[str, str]]:
    """Return the labels of the readings that are not known and the reason, each reason once.

    Of a run without GPU work, the readings are only counted, under the most frequent reason; samples have reasons of their own.
    """
    absent = [(key, reading.why_missing or "") for key in METRICS if (reading := result.metrics[key]).value is None]
    if result.lead is None:
        why = Counter(reason for _, reason in absent).most_common(1)
        most = {reason for reason, _ in why}
        apart = [(changes.label(key), reason) for key, reason in absent if METRICS[key].from_telemetry and reason not in most]
        count = len(absent) - len(apart)
        which = f"All {count}" if count == len(METRICS) else f"{count} more"
        return [*((f"{which} numbers", reason) for reason in most), *apart]
    return [
        (", ".join(changes.label(key) for key, own_reason in absent if own_reason == reason), reason)
        for reason in dict.fromkeys(reason for _, reason in absent)
    ]


def without_repeated_reasons(rows: list[tuple[str, str]], reasons: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return rows of label and value in which a reason that ``reasons`` contain is only NO_VALUE."""
    printed = {reason for _, reason in reasons}
    return [(label, NO_VALUE if value in printed else value) for label, value in rows]
