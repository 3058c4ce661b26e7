"""What a notebook shows of ``import sawtooth``."""

import pydoc

import pytest

import sawtooth
from sawtooth.notebook import Report
from tests.support.paths import RECORDINGS


@pytest.fixture(scope="module")
def report() -> Report:
    return sawtooth.analyse(RECORDINGS / "mlp_eager")


def test_help_shows_the_two_functions() -> None:
    text = pydoc.render_doc(sawtooth, renderer=pydoc.plaintext)
    assert "analyse(*sources" in text
    assert "compare(before" in text


def test_a_report_and_a_comparison_show_themselves_in_one_line(report: Report) -> None:
    step = report.step_time_ms
    assert step is not None
    assert repr(report) == f"<Report of {report.result.manifest.name!r}: {step:.3g} ms a step, {len(report.findings)} findings>"
    name = report.result.manifest.name
    assert repr(sawtooth.compare(report, report)) == f"<ComparisonReport of {name!r} against {name!r}: no_change>"
    assert str(report) != repr(report), "print keeps the text"
