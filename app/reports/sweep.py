"""A sweep as Markdown for a pull request: the recommended value, the reason, and the table."""

from __future__ import annotations

from sawtooth.analysis.compare.sweep import Sweep
from sawtooth.app.reports.escaped import as_written, table
from sawtooth.app.words.comparisons import sweep as words


def markdown(sweep: Sweep) -> str:
    """Return the sweep as GitHub-flavoured Markdown."""
    lines = table(list(words.columns(sweep).values()), words.cells(sweep))
    return "\n".join([as_written(words.sentence(sweep)), "", *lines, ""])
