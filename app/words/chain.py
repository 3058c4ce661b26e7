"""A chain of runs in words: a column a run, a row a line of the audit, then what each change was to bring and brought."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.compare.chain import Chain, Change
from sawtooth.app import format as fmt
from sawtooth.app.words.audit import shown

SECTION = "Audit over the runs"
NAME_LENGTH = 40


def heads(chain: Chain) -> list[str]:
    """Return the columns: what a row says, then the runs by name."""
    names = [fmt.clean(run.manifest.name, NAME_LENGTH) for run in chain.runs]
    return [SECTION, *(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, start=1))]


def rows(chain: Chain) -> list[list[str]]:
    """Return the rows: every line of the audit that at least one run has, then the changes."""
    lines = [
        [line.row.label, *(shown(line.row, reading) for reading in line.readings)]
        for line in chain.lines
        if any(reading.value is not None for reading in line.readings)
    ]
    changes = [
        ("No longer found", [", ".join(change.fixed) or "nothing" for change in chain.changes]),
        ("Predicted gain a step", [_ms(change.predicted_gain_ms) for change in chain.changes]),
        ("Measured gain a step", [_measured(change) for change in chain.changes]),
        ("Of the first run's step", [_of_first(chain, change) for change in chain.changes]),
    ]
    return lines + [[label, fmt.MISSING, *cells] for label, cells in changes]


def title(chain: Chain) -> str:
    """Return what the whole chain came to."""
    first, last = chain.changes[0].before_ms, chain.changes[-1].after_ms
    if not first or not last:
        return f"The audit of {len(chain.runs)} runs; not every one has a step time"
    return f"{fmt.duration_ms(first)} → {fmt.duration_ms(last)} a step over {fmt.many(len(chain.changes), 'change')}: {first / last:.3g} times as fast"


def markdown(chain: Chain) -> str:
    """Return the table as GitHub-flavoured Markdown, under its title."""
    return as_markdown(f"## {title(chain)}", heads(chain), rows(chain))


def as_markdown(head: str, columns: Sequence[str], cells: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a Markdown table under ``head``; ``cells`` are our own words and numbers, or were made safe. ``numbers``: all but the first column are."""
    rule = " ---: |" if numbers else " --- |"
    lines = [head, "", f"| {' | '.join(map(fmt.markdown, columns))} |", f"| --- |{rule * (len(columns) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells), ""])


def _ms(value: float | None) -> str:
    return fmt.MISSING if value is None else fmt.signed(fmt.duration_ms(value), value) if value else "none"


def _measured(change: Change) -> str:
    gain = _ms(change.measured_gain_ms)
    return gain if change.measured_gain_ms is None or change.verdict in ("faster", "slower") else f"{gain} ({change.verdict})"


def _of_first(chain: Chain, change: Change) -> str:
    first = chain.changes[0].before_ms
    return fmt.share(change.after_ms / first) if first and change.after_ms is not None else fmt.MISSING
