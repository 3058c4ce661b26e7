"""Reports for notebooks, with the same numbers as the page and ``sawtooth report``."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison import compare as compare_sides
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import with_aliases
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.contract import ReportPart
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.commands.inputs import opened
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.reports import text as report_text


class Report:
    """The analysis of one run. A notebook shows it as Markdown, ``print`` as text.

    ``library`` reads the run's recordings until the report is garbage collected. Recordings that came from files are then
    removed.
    """

    def __init__(self, result: RunResult, library: Library, stack: ExitStack) -> None:
        self.result = result
        self.library = library
        weakref.finalize(self, stack.close)

    @property
    def metrics(self) -> dict[str, Reading]:
        """Every metric by its key, with its trust or the reason why it is missing.

        Times are in ms, shares from 0 to 1.
        """
        return with_aliases(self.result.metrics)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Causes of lost time and what to do, largest predicted gain first."""
        return tuple(self.result.findings)

    @property
    def step_time_ms(self) -> float | None:
        """The run's best step time in ms; None if it has no steps."""
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
    """Changes between two runs. A notebook shows them as Markdown, ``print`` as text."""

    comparison: Comparison

    @property
    def verdict(self) -> Answer:
        """The result: faster, slower, faster_size_unknown, slower_size_unknown, no_change or cannot_tell."""
        return self.comparison.answer

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
    """Analyse the run in ``sources``: its files or folders, or its id or name in the folder ``data``.

    Raises SawtoothError with a message for users if nothing can be read, or if the files belong to several runs.
    """
    stack = ExitStack()
    try:
        run = stack.enter_context(opened([str(source) for source in sources], data))
        return Report(result_of(run.manifest, run.library), run.library, stack)
    except BaseException:
        stack.close()
        raise


def compare(before: Report | str | Path, after: Report | str | Path) -> ComparisonReport:
    """Compare two runs, as reports or as sources for ``analyse``.

    Raises SawtoothError as ``analyse`` does.
    """
    return ComparisonReport(compare_sides(_side(before), _side(after)))


def _side(source: Report | str | Path) -> Side:
    report = source if isinstance(source, Report) else analyse(source)
    return side_of([report.result], report.library)
