"""Sawtooth in a notebook: files in, a report object out; the same numbers as on the page and in ``sawtooth report``."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison import compare as compare_sides
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.side import Side, side_of
from sawtooth.analysis.kept import result_of
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import with_aliases
from sawtooth.analysis.run.contract import ReportPart
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.commands.inputs import opened
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.reports import text as report_text


class Report:
    """What is known of one run. Shown as Markdown in a notebook, as text by ``print``.

    ``library`` reads the run's recordings until the report is garbage collected; recordings brought in from files are then removed.
    """

    def __init__(self, result: RunResult, library: Library, stack: ExitStack) -> None:
        self.result = result
        self.library = library
        weakref.finalize(self, stack.close)

    @property
    def metrics(self) -> dict[str, Reading]:
        """Every metric by its key; times in ms, shares from 0 to 1, each with its trust or the reason why it is missing."""
        return with_aliases(self.result.metrics)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What costs time and what to do, largest predicted gain first."""
        return tuple(self.result.findings)

    @property
    def step_time_ms(self) -> float | None:
        """The run's best step time in ms; None where it has no steps."""
        return self.metrics["best_step_time_ms"].value

    def to_json(self) -> ReportPart:
        """Return the report's contract, as ``sawtooth report --format json`` prints it."""
        return report_json(self.result)

    def __repr__(self) -> str:
        step = self.step_time_ms
        time = "no step time" if step is None else f"{step:.3g} ms a step"
        return f"<Report of {self.result.manifest.name!r}: {time}, {len(self.findings)} findings>"

    def __str__(self) -> str:
        return report_text.text(self.result)

    def _repr_markdown_(self) -> str:
        return report_text.markdown(self.result)


@dataclass(frozen=True)
class ComparisonReport:
    """What changed between two runs. Shown as Markdown in a notebook, as text by ``print``."""

    comparison: Comparison

    @property
    def verdict(self) -> str:
        """One of faster, slower, no_difference_shown and inconclusive."""
        return self.comparison.verdict.word

    def to_json(self) -> dict[str, Any]:
        """Return the comparison's contract, as ``sawtooth compare --format json`` prints it."""
        return compare_json(self.comparison)

    def __repr__(self) -> str:
        before, after = (
            " and ".join(repr(run.manifest.name) for run in side.runs) for side in (self.comparison.a, self.comparison.b)
        )
        return f"<ComparisonReport of {before} against {after}: {self.verdict}>"

    def __str__(self) -> str:
        return comparison_text.text(self.comparison, [])

    def _repr_markdown_(self) -> str:
        return comparison_text.markdown(self.comparison, [])


def analyse(*sources: str | Path, data: Path | None = None) -> Report:
    """Analyse the run that ``sources`` name: files or folders of one run, or one run id or name of the folder ``data``.

    Raises SawtoothError with a sentence for people when nothing can be read, or when the files are several runs.
    """
    stack = ExitStack()
    try:
        run = stack.enter_context(opened([str(source) for source in sources], data))
        return Report(result_of(run.manifest, run.library), run.library, stack)
    except BaseException:
        stack.close()
        raise


def compare(before: Report | str | Path, after: Report | str | Path) -> ComparisonReport:
    """Compare two runs, given as reports or as what ``analyse`` takes. Raises SawtoothError as ``analyse`` does."""
    return ComparisonReport(compare_sides(_side(before), _side(after)))


def _side(source: Report | str | Path) -> Side:
    report = source if isinstance(source, Report) else analyse(source)
    return side_of([report.result], report.library)
