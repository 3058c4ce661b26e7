"""A chain of runs in words: one column per run, one row per audit line, then the gains of the changes."""

from __future__ import annotations

import math

from sawtooth.analysis.compare.chain import ChainChange, RunChain
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons.audit import shown

SECTION = "Audit over the runs"
NAME_LENGTH = 40  # Longer names of runs are cut to this many characters.
NOTES: dict[Answer, str] = {  # Notes on measured gains. A gain of known size needs none.
    "faster_size_unknown": "size uncertain",
    "slower_size_unknown": "size uncertain",
    "no_change": "no change",
    "cannot_tell": "cannot tell",
}


def heads(chain: RunChain) -> list[str]:
    """Return the headings: the row's label, then the runs by name."""
    names = [fmt.clean(run.manifest.name, NAME_LENGTH) for run in chain.runs]
    return [SECTION, *(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, start=1))]


def rows(chain: RunChain) -> list[list[str]]:
    """Return every audit line that at least one run has, then the changes."""
    lines = [
        [line.row.label, *(shown(line.row, reading) for reading in line.readings)]
        for line in chain.lines
        if any(reading.value is not None for reading in line.readings)
    ]
    changes = [
        ("Findings that are gone", [", ".join(change.fixed) or "nothing" for change in chain.changes]),
        (f"Predicted gain{_basis(chain)}", [_ms(change.predicted_gain_ms) for change in chain.changes]),
        (f"Measured gain{_basis(chain)}", [_measured_in_words(change) for change in chain.changes]),
        ("Share of the first run's step", _shares(chain)),
    ]
    return lines + [[label, fmt.MISSING, *cells] for label, cells in changes]


def title(chain: RunChain) -> str:
    """Return the total effect of the chain."""
    first, last = chain.runs[0].metrics["best_step_time_ms"].value, chain.runs[-1].metrics["best_step_time_ms"].value
    if not first or not last or chain.speedup is None:
        return f"The audit of {len(chain.runs)} runs; not every run has a step time"
    changes, speedup = fmt.many(len(chain.changes), "change"), f"{chain.speedup:.3g} times as fast"
    if _has_same_work(chain):
        return f"{fmt.duration_ms(first)} → {fmt.duration_ms(last)} per step over {changes}: {speedup}"
    return f"{changes}: {speedup} for the same work, with other batches"


def _has_same_work(chain: RunChain) -> bool:
    return all(change.work == 1 for change in chain.changes)


def _basis(chain: RunChain) -> str:
    return " per step" if _has_same_work(chain) else ", for the work of a step of the run before"


def _shares(chain: RunChain) -> list[str]:
    """Return the time of each later run for the first run's work, as a share of the first run's time."""
    shares, share = [], 1.0
    for change in chain.changes:
        share = share * change.after_ms / change.before_ms if change.before_ms and change.after_ms else math.nan
        shares.append(fmt.share(share) if math.isfinite(share) else fmt.MISSING)
    return shares


def _ms(value: float | None) -> str:
    if value is None:
        return fmt.MISSING
    return fmt.signed(fmt.duration_ms(value), value) if value else "none"


def _measured_in_words(change: ChainChange) -> str:
    gain = _ms(change.measured_gain_ms)
    has_note = change.measured_gain_ms is not None and change.verdict in NOTES
    return f"{gain} ({NOTES[change.verdict]})" if has_note else gain
