"""The audit as Markdown for a pull request: a run's checklist, or the table of a chain of runs."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.compare.chain import RunChain
from sawtooth.analysis.findings.checklist import Checked
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.reports.escaped import as_written, table
from sawtooth.app.words import checklist
from sawtooth.app.words.comparisons import chain


def of_run(result: RunResult, checked: Sequence[Checked]) -> str:
    """Return the checklist as GitHub-flavoured Markdown."""
    name = fmt.clean(result.manifest.name, fmt.NAME_LENGTH)
    head = f"## {as_written(f'{name}: {checklist.title(result, checked)}')}"
    lines = table(checklist.COLUMNS, checklist.rows(result, checked), words=len(checklist.COLUMNS))
    return "\n".join([head, "", *lines, ""])


def of_chain(run_chain: RunChain) -> str:
    """Return the table as GitHub-flavoured Markdown, with its title."""
    lines = table(chain.heads(run_chain), chain.rows(run_chain))
    return "\n".join([f"## {as_written(chain.title(run_chain))}", "", *lines, ""])
