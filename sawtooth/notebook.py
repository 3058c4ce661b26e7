"""Reports for notebooks, with the same numbers as the page and ``sawtooth report``."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison import compare as compare_sides
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import with_aliases
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.contract import ReportPart
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run.verdict import columns_of, parts_of
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.staircase import Staircase, staircase_of
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.tables import kernels as kernel_tables
from sawtooth.app.charts import step_figure
from sawtooth.app.commands.inputs import opened
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.reports import pictures
from sawtooth.app.reports import text as report_text
from sawtooth.app.theme import colour_of
from sawtooth.app.words import staircase as staircase_words

_FINDING_COLUMNS = ("rule", "severity", "confidence", "title", "fix", "claims", "gain_ms", "predicted_step_ms",
               "predicted_low_ms", "predicted_high_ms", "ceiling_ms_per_step")  # fmt: skip


class Findings(tuple[Finding, ...]):
    """Findings in the report's order; ``df`` returns them as a table."""

    __slots__ = ()

    def df(self) -> pd.DataFrame:
        """Return a table with a row per finding; times are ms per step."""
        rows = [[getattr(finding, name) for name in _FINDING_COLUMNS] for finding in self]
        return pd.DataFrame(rows, columns=list(_FINDING_COLUMNS))


class Report:
    """The analysis of one run. A notebook shows the staircase, and ``print`` shows the text report.

    ``library`` reads the run's recordings until the report is garbage collected.
    """

    def __init__(self, result: RunResult, library: Library, stack: ExitStack) -> None:
        self.result = result
        self.library = library
        weakref.finalize(self, stack.close)

    @property
    def metrics(self) -> dict[str, Reading]:
        """Every metric by key, with its trust or the reason why it is missing.

        The end of a key is the unit. Shares are between 0 and 1.
        """
        return with_aliases(self.result.metrics)

    @property
    def findings(self) -> Findings:
        """The causes of lost time and what to do, in the report's order."""
        return Findings(self.result.findings)

    @property
    def step_time_ms(self) -> float | None:
        """The best known step time of the run in ms; None if it is not known."""
        return self.metrics["best_step_time_ms"].value

    @cached_property
    def staircase(self) -> Staircase | None:
        """The step now and after each change of the plan; None if the run has no step time."""
        computed = staircase_of(self.library, self.result, every_choice=False)
        return staircase_words.of_run(self.result, computed)

    def kernels(self, by: kernel_tables.KernelGroup = "name") -> pd.DataFrame:
        """Return the GPU operations of the counted steps, longest first; empty if no GPU worked.

        ``by`` is name, category, operator, shape or tensor_cores. Times are ms per step, as profiled.
        """
        if self.result.lead is None:
            return pd.DataFrame(columns=["name", "ms", "share"])
        with open_rank(self.library, self.result.lead) as rank:
            return kernel_tables.kernels(rank, by)

    def ledger(self) -> pd.DataFrame:
        """Return the parts of a step: owner, cause, name, and a column of ms for each basis.

        The first column of ms is the step that represents the run. Each column sums to the duration of a step.
        """
        rank = self.result.lead
        columns: dict[str, dict[tuple[str, str | None], float]] = {}
        if rank is not None:
            for basis in columns_of(rank):
                columns[f"{basis}_ms"] = {(part.owner, part.cause): part.ms for part in parts_of(rank, basis)}
        elif parts := host_parts(self.result):
            columns = {"host_ms": {(owner, None): ms for owner, ms in parts.items()}}
        keys = dict.fromkeys(key for parts in columns.values() for key in parts)
        rows = [(*key, colour_of(*key).label, *(parts.get(key, 0.0) for parts in columns.values())) for key in keys]
        return pd.DataFrame(rows, columns=["owner", "cause", "name", *columns])

    def plot(self) -> go.Figure:
        """Return the staircase as a Plotly figure, which is empty without a step time."""
        return step_figure.figure(pictures.stair_bars(self.result, self.staircase) if self.staircase is not None else [])

    def to_json(self) -> ReportPart:
        """Return the report's contract, as ``sawtooth report --format json`` prints it."""
        return report_json(self.result)

    def __repr__(self) -> str:
        step = self.step_time_ms
        time = "no step time" if step is None else f"{step:.3g} ms per step"
        return f"<Report of {self.result.manifest.name!r}: {time}, {len(self.findings)} findings>"

    def __str__(self) -> str:
        return report_text.text(self.result)

    def _repr_html_(self) -> str:
        return pictures.run_output(self.result, self.staircase)

    def _repr_markdown_(self) -> str:
        return report_text.markdown(self.result)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return _bundle(self, include, exclude)


@dataclass(frozen=True)
class ComparisonReport:
    """The comparison of two runs. A notebook shows both steps, and ``print`` shows the text."""

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

    def df(self) -> pd.DataFrame:
        """Return the parts of both steps with their change in ms; empty if the steps cannot be divided."""
        parts = pictures.parts_of(self.comparison)
        rows = [(part.owner, part.cause, part.label, part.ms_a, part.ms_b, part.change_ms, part.resolved) for part in parts]
        return pd.DataFrame(rows, columns=["owner", "cause", "name", "before_ms", "after_ms", "change_ms", "resolved"])

    def plot(self) -> go.Figure:
        """Return both steps as a Plotly figure; empty if the steps cannot be divided."""
        return step_figure.figure(pictures.step_bars(self.comparison))

    def _repr_html_(self) -> str:
        return pictures.comparison_output(self.comparison)

    def _repr_markdown_(self) -> str:
        return comparison_text.markdown(self.comparison, [])

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return _bundle(self, include, exclude)


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


def _bundle(
    report: Report | ComparisonReport, include: Collection[str] | None, exclude: Collection[str] | None
) -> dict[str, str]:
    """Return the representations that a notebook asks for, by MIME type."""
    forms: dict[str, Callable[[], str]] = {
        "text/plain": report.__str__,
        "text/markdown": report._repr_markdown_,
        "text/html": report._repr_html_,
    }
    return {
        form: render() for form, render in forms.items() if (not include or form in include) and form not in (exclude or ())
    }


def _side(source: Report | str | Path) -> Side:
    report = source if isinstance(source, Report) else analyse(source)
    return side_of([report.result], report.library)
