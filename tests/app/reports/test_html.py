"""Tests of the HTML report of a run: it makes no network request.

A step that is the same with and without the profiler is drawn once.
"""

from __future__ import annotations

import re

from sawtooth.analysis.run.model import CodeChange, Finding
from sawtooth.app.reports.html import _change, run_html
from tests.support.actions import act
from tests.support.findings_of import result_of
from tests.support.run_results import run_of

MAX_BYTES = 1_000_000


def test_a_step_with_equal_columns_is_one_bar() -> None:
    same = run_html(run_of(ledger=[("other_compute", None, 600_000, 0.6), ("idle", "data_wait", 400_000, 0.4)]))
    other = run_html(run_of(ledger=[("other_compute", None, 600_000, 0.6), ("idle", "data_wait", 400_000, 0.2)]))
    assert (same.count('class="bar"'), other.count('class="bar"')) == (1, 2)


def test_a_report_is_one_small_file_that_loads_nothing() -> None:
    page = run_html(result_of("gpt_small"))
    assert len(page.encode()) < MAX_BYTES and "<script" not in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(\s*["']?(https?:)?//|@import""", page)
    assert page.index("<h1") < page.index("st-poster")


def test_several_examples_for_one_framework_have_different_names() -> None:
    changes = tuple(
        CodeChange(framework, "a()", f"b({framework})") for framework in ("PyTorch", "PyTorch", "Lightning", "PyTorch")
    )
    finding = Finding("rule", "warning", "Title", act("Do it."), "low", changes=changes)
    named = [name for name, _ in _change(1, finding, run_of(best_ms=10.0, findings=[finding])).diffs]
    assert named == ["PyTorch", "PyTorch, example 2", "Lightning", "PyTorch, example 3"]
