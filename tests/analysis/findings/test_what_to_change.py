"""Tests of the Verdict's changes: selection and price in the address, and their common effect.

The report as one HTML file contains them too.
"""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.reports.html import run_html
from sawtooth.app.reports.text import gain
from sawtooth.app.words.predicted_gain import gain_text
from sawtooth.ingest.schema import DataFolder
from tests.support import run_results
from tests.support.actions import act
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.pages import opened, run_of, staircase_of, words_of


def launching() -> ChromeTrace:
    """Return six steps of 1 ms with ten kernels of 5 µs each, launched 100 µs apart: launch-bound."""
    trace = ChromeTrace()
    for at in trace.each_step(6, 1000.0, first=0):
        for i in range(10):
            t = at + 100 * i
            trace.op("aten::add", t + 5, t + 90, [[64, 64], [64, 64], []], ["c10::BFloat16", "c10::BFloat16", "Scalar"])
            trace.launch((t + 40, t + 50), (t + 60, t + 65), "void at::native::vectorized_elementwise_kernel<4, Add>(int)")
    return trace


@pytest.fixture
def loop(app_data: DataFolder, tmp_path: Path) -> str:
    return run_of(app_data, launching().write(tmp_path / "trace.json"))


def test_a_selected_change_of_the_address_shows_its_gain(loop: str) -> None:
    test = opened("verdict", loop, fixes="launch-bound")
    drawn = staircase_of(test)
    assert drawn is not None and [change["rule"] for change in included(drawn)] == ["launch-bound"]
    assert "A training that takes a day now" in words_of(test)


def test_the_title_of_the_tab_follows_the_selected_changes(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page sends a title for each selection, and the browser shows the one in use."""
    titles: list[str] = []
    monkeypatch.setattr("streamlit.set_page_config", lambda **config: titles.append(config.get("page_title", "")))
    drawn = staircase_of(opened("verdict", loop))
    headline = titles[-1]
    assert drawn is not None and drawn["states"][str(drawn["first"])]["tab"] == headline
    other = next(change["rule"] for i, change in enumerate(drawn["changes"]) if 1 << i != drawn["first"])
    opened("verdict", loop, fixes=other)
    assert "→" in titles[-1] and titles[-1] != headline, titles
    opened("verdict", loop)
    assert titles[-1] == headline


def test_the_address_restores_selected_changes_and_price(loop: str) -> None:
    test = opened("verdict", loop, fixes="launch-bound,no-such-rule", price="2.5")
    drawn = staircase_of(test)
    assert drawn is not None and [change["rule"] for change in included(drawn)] == ["launch-bound"]
    assert "Saved" in words_of(test)


def included(drawn: dict[str, Any]) -> list[dict[str, Any]]:
    return [change for i, change in enumerate(drawn["changes"]) if drawn["choice"] >> i & 1]


def result_of(folder: Path, trace: ChromeTrace, name: str = "t") -> RunResult:
    library = Library(DataFolder(folder / "data"))
    run = ingest_into_runs(library.folder, [(trace.write(folder / "t.json"), "t.json")], name=name).runs[0]
    result = analyse(run, library)
    library.close()
    return result


def finding_with(**fields: object) -> Finding:
    return Finding("r", "info", "A finding", act("Change it."), "low", **fields)  # type: ignore[arg-type]


SAME = None  # Page and report agree.


@pytest.mark.parametrize(
    ("finding", "claims", "report", "page"),
    [
        (
            finding_with(predicted_step_ms=8.0, predicted_speedup=1.25, ceiling_ms_per_step=3.0),
            "gain",
            "10.0 → ≈ 8.00 ms",
            "saves ≈ 2.0 ms per step (20 %)",
        ),
        (
            finding_with(predicted_step_ms=9.96, predicted_speedup=1.004),
            "caution",
            "no gain on its own: another bottleneck takes over",
            SAME,
        ),
        (finding_with(ceiling_ms_per_step=3.0), "ceiling", "saves at most 3.00 ms per step", SAME),
        (finding_with(ceiling_ms_per_step=0.0), "caution", "gain not predicted", SAME),
        (finding_with(), "caution", "gain not predicted", SAME),
        (finding_with(ends_the_run=True), "caution", "prevents running out of memory", SAME),
        (
            finding_with(ceiling_ms_per_step=0.5, pays_later=True),
            "ceiling",
            "helps only after another change",
            SAME,
        ),
        (finding_with(pays_later=True), "caution", "helps only after another change", SAME),
    ],
)
def test_a_finding_has_a_gain_an_upper_limit_or_neither(finding: Finding, claims: str, report: str, page: str | None) -> None:
    assert finding.claims == claims
    result = replace(run_results.run_of(ledger=[("idle", "launch_bound", 10_000_000, 10.0)]), findings=[finding])
    assert gain(result, finding).replace("\xa0", " ") == report
    assert gain_text(finding).replace("\xa0", " ") == (page or report)


def test_findings_without_a_gain_are_listed_separately(app_data: DataFolder, tmp_path: Path) -> None:
    # A loop's steps are marked by an annotation. That the profiler's step marks are missing is useful to know, but makes
    # no step shorter.
    trace = launching()
    for event in trace.events:
        event["name"] = event["name"].replace("ProfilerStep#", "Optimizer.step#SGD.step ").split(" ")[0]
    test = opened("verdict", run_of(app_data, trace.write(tmp_path / "t.json")))
    folded = next(box for box in test.expander if "without a predicted gain" in box.label)
    inside = " ".join(str(e.value) for e in [*folded.markdown, *folded.html, *folded.caption])
    assert "marks no profiler steps" in inside and "for kernel launches" not in inside, inside


def test_the_report_has_verdict_changes_and_readings(tmp_path: Path) -> None:
    result = result_of(tmp_path, launching())
    page = run_html(result)
    first = result.findings[0]
    text = " ".join(html.unescape(page).split())
    assert all(
        " ".join(answer.replace("%", " %").split()) in text
        for answer in (first.title, first.fix, first.risk, first.changes[0].after)
    )
    assert page.count('<div class="bar"') == 2  # One bar as recorded, one without the profiler.
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%\"", page.split('<div class="bar"')[1].split("small legend")[0])]
    assert sum(widths) == pytest.approx(100, abs=0.01)  # The parts sum to the total.
    assert "not checked, because" in page


def test_the_report_loads_nothing_and_names_stay_text(tmp_path: Path) -> None:
    page = run_html(result_of(tmp_path, matmul_loop(), "<img src=http://evil.example/a.png onerror=alert(1)>"))
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert "<script" not in page and "<img" not in page and "&lt;img src=http://evil.example" in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page.replace("&lt;img src=http", ""))
