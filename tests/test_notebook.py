"""Tests of the output of ``import sawtooth`` in a notebook."""

import ast
import json
import pydoc
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, get_args
from xml.etree import ElementTree

import msgspec
import pytest

import sawtooth
from sawtooth.analysis.tables.kernels import KernelGroup
from sawtooth.app.reports import pictures
from sawtooth.notebook import ComparisonReport, Report
from tests.support.paths import RECORDINGS, ROOT

EVIL = '</svg><script>alert(1)</script><b onclick="x">'


@pytest.fixture(scope="module")
def report() -> Report:
    return sawtooth.analyse(RECORDINGS / "mlp_eager")


def test_help_shows_the_two_functions() -> None:
    text = pydoc.render_doc(sawtooth, renderer=pydoc.plaintext)
    assert "analyse(*sources" in text
    assert "compare(before" in text


def test_every_grouping_of_kernels_sums_to_the_same_time(report: Report) -> None:
    sums = [float(report.kernels(by)["ms"].sum()) for by in get_args(KernelGroup)]
    assert sums[0] > 0 and sums == pytest.approx([sums[0]] * len(sums))


def test_a_report_and_a_comparison_have_a_one_line_repr(report: Report) -> None:
    step = report.step_time_ms
    assert step is not None
    assert (
        repr(report) == f"<Report of {report.result.manifest.name!r}: {step:.3g} ms per step, {len(report.findings)} findings>"
    )
    name = report.result.manifest.name
    assert repr(sawtooth.compare(report, report)) == f"<ComparisonReport of {name!r} against {name!r}: no_change>"
    assert str(report) != repr(report), "print shows the full text"


def cells() -> list[str]:
    notebook = json.loads((ROOT / "docs" / "guides" / "notebook.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def outputs() -> dict[str, Any]:
    """Run the documented notebook from its folder; return the value of each cell's last line."""
    names: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT / "docs" / "guides")
        for cell in cells():
            *body, last = ast.parse(cell).body
            if not isinstance(last, ast.Expr):
                body.append(last)
            exec(compile(ast.Module(body, []), "notebook.ipynb", "exec"), names)
            if isinstance(last, ast.Expr):
                shown[cell] = eval(compile(ast.Expression(last.value), "notebook.ipynb", "eval"), names)
    return shown


def of(outputs: dict[str, Any], start: str) -> Any:
    return next(value for cell, value in outputs.items() if cell.splitlines()[-1].startswith(start))


def picture(html: str) -> ElementTree.Element:
    """Return the SVG of an output. Raises an error if the SVG is not well formed."""
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def test_the_notebook_runs_and_shows_the_staircase_of_the_report(outputs: dict[str, Any]) -> None:
    report: Report = of(outputs, "before")
    html = report._repr_html_()
    texts = [text.text for text in picture(html).iter("{http://www.w3.org/2000/svg}text")]
    assert report.staircase is not None
    assert "Now" in texts
    assert any(text and text.startswith("1  ") for text in texts)
    assert "<script" not in html
    assert set(report._repr_mimebundle_()) == {"text/plain", "text/markdown", "text/html"}
    assert set(report._repr_mimebundle_(include={"text/html"})) == {"text/html"}


def test_the_tables_of_the_notebook_have_the_numbers_of_the_report(outputs: dict[str, Any]) -> None:
    report: Report = of(outputs, "before")
    findings, ledger = of(outputs, "before.findings"), of(outputs, "before.ledger")
    assert findings["rule"].tolist() == [finding.rule for finding in report.findings]
    assert report.staircase is not None
    assert ledger.iloc[:, 3].sum() == pytest.approx(report.staircase.now.ms, rel=0.02)
    assert of(outputs, "before.kernels")["share"].sum() == pytest.approx(1)
    assert len(of(outputs, "figure.update_layout").data) >= 2


def test_the_comparison_of_the_notebook_shows_both_steps(outputs: dict[str, Any]) -> None:
    comparison: ComparisonReport = next(value for value in outputs.values() if isinstance(value, ComparisonReport))
    rows = of(outputs, "comparison.df")
    assert (rows["after_ms"] - rows["before_ms"]).sum() == pytest.approx(rows["change_ms"].sum())
    assert rows["change_ms"].is_monotonic_increasing
    assert picture(comparison._repr_html_()).get("role") == "img"
    assert of(outputs, "comparison.verdict") == "faster"
    slide = ElementTree.fromstring(pictures.slide_of(comparison.comparison))
    assert slide.get("viewBox") == "0 0 1920 1080"
    assert len(list(slide.iter("{http://www.w3.org/2000/svg}svg"))) == 2, "the slide contains a picture of both steps"


def test_names_of_a_trace_never_become_markup(report: Report) -> None:
    finding = replace(report.findings[0], title=EVIL)
    manifest = msgspec.structs.replace(report.result.manifest, name=EVIL)
    evil = replace(report.result, manifest=manifest, findings=[finding, *report.findings[1:]])
    changed = Report(evil, report.library, ExitStack())
    other = ComparisonReport(sawtooth.compare(changed, report).comparison)
    for html in (changed._repr_html_(), other._repr_html_()):
        assert "alert(1)" in html
        assert "<script" not in html
        assert "<b " not in html
        picture(html)
    ElementTree.fromstring(pictures.slide_of(other.comparison))
    names = other.plot().layout.yaxis.ticktext
    assert any("alert(1)" in name for name in names)
    assert not any("<script" in name for name in names), "Plotly reads labels as markup"
