"""A sweep as Markdown, for a pull request: what to choose and why, and the table."""

from __future__ import annotations

from sawtooth.analysis.compare.sweep import Sweep
from sawtooth.app.reports.escaped import as_written
from sawtooth.app.words.comparisons import chain
from sawtooth.app.words.comparisons import sweep as words


def markdown(sweep: Sweep) -> str:
    """Return the sweep as GitHub-flavoured Markdown."""
    cells = [[as_written(cell) for cell in row] for row in words.cells(sweep)]
    return chain.as_markdown(as_written(words.sentence(sweep)), list(words.columns(sweep).values()), cells)
