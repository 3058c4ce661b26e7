"""Tests of ``sawtooth compare``: text, JSON, Markdown and HTML, gates, exit codes and hostile names."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.version import TOOL_VERSION
from sawtooth.app.cli import cli, main
from sawtooth.app.commands.names import each_with_option
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.reports import html as html_report
from sawtooth.app.words.comparisons import comparison as compare_words
from tests.support.chrome_trace import matmul_loop
from tests.support.run_results import run_of, side


@pytest.fixture
def traces(tmp_path):
    slow = matmul_loop(steps=6).write(tmp_path / "before.json")
    fast = matmul_loop(steps=6, step_us=800, matmul_us=400).write(tmp_path / "after.json")
    return str(slow), str(fast), str(tmp_path / "data")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the names of both runs in a data folder that the tests share."""
    folder = tmp_path_factory.mktemp("stored")
    slow = matmul_loop(steps=6).write(folder / "before.json")
    fast = matmul_loop(steps=6, step_us=800, matmul_us=400).write(folder / "after.json")
    for file in (slow, fast):
        assert CliRunner().invoke(cli, ["ingest", str(file), "--data", str(folder / "data")]).exit_code == 0
    return "before", "after", str(folder / "data")


def run(*arguments):
    return CliRunner().invoke(cli, ["compare", *arguments])


def test_the_version_is_printed():
    assert CliRunner().invoke(cli, ["--version"]).output.strip() == TOOL_VERSION


def test_text_begins_with_the_verdict(traces):
    a, b, data = traces
    found = run(a, b, "--data", data)
    assert found.exit_code == 0
    assert found.output.splitlines()[0] == "after is faster than before, size uncertain: 1.00\u00a0ms → 0.80\u00a0ms per step."
    assert "tensor-core compute" in found.output


def test_without_sides_the_newest_two_runs_of_the_same_work_are_compared(traces):
    a, b, data = traces
    assert run("--data", data).exit_code != 0
    for file in (a, b):
        assert CliRunner().invoke(cli, ["ingest", file, "--data", data]).exit_code == 0
    found = run("--data", data)
    assert found.exit_code == 0 and "after is faster than before" in found.output
    assert run(a, "--data", data).exit_code != 0


def test_json_matches_the_contract_and_its_waterfall_sums(stored):
    a, b, data = stored
    output = run(a, b, "--data", data, "--format", "json").output
    assert output == run(a, b, "--data", data, "--json").output, "a short form"
    assert "two formats" in str(run(a, b, "--data", data, "--json", "--format", "md").exception)
    found = json.loads(output)
    assert sum(row["change_ms"] for row in found["waterfall"]) == pytest.approx(
        found["profile_step_time_ms"]["change_ms"], abs=1e-12
    )
    assert found["best_step_time_ms"]["verdict"] == "faster"
    assert found["a"]["name"] == "before"


def test_a_run_against_itself_shows_no_difference(stored):
    a, _, data = stored
    found = json.loads(run(a, a, "--data", data, "--format", "json").output)
    assert found["best_step_time_ms"]["verdict"] == "no_difference_shown"
    assert {row["change_ms"] for row in found["waterfall"]} == {0.0}
    assert {row["change_ms"] for row in (*found["kernels"], *found["operators"])} == {0.0}


@pytest.mark.parametrize(
    ("swap", "gate", "code"),
    [
        (False, "best_step_time_ms:+5%", 0),
        (True, "best_step_time_ms:+5%", 1),
        (True, "best_step_time_ms:+1ms", 0),
        (False, "sawtooth_period_s:+1s", 2),  # No telemetry: not known.
    ],
)
def test_gates_set_the_exit_code(stored, swap, gate, code):
    a, b, data = stored
    found = run(*((b, a) if swap else (a, b)), "--data", data, "--fail-on", gate)
    assert found.exit_code == code
    assert gate in found.output


def test_wrong_usage_exits_2_with_one_sentence(stored, monkeypatch, capsys):
    a, b, data = stored
    for arguments in ([a, b, "--fail-on", "speed:+5%"], [a, "nowhere.json"]):
        monkeypatch.setattr("sys.argv", ["sawtooth", "compare", *arguments, "--data", data])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_markdown_has_the_marker_and_html_loads_nothing(stored, tmp_path):
    a, b, data = stored
    assert run(a, b, "--data", data, "--format", "md").output.startswith(
        "<!-- sawtooth-report -->\n## after is faster than before, size uncertain"
    )
    output = tmp_path / "report.html"
    assert run(a, b, "--data", data, "--format", "html", "--output", str(output)).exit_code == 0
    page = output.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert (
        page.count('class="st-move"') >= 3 and page.count('class="st-prow') >= 4
    )  # The pictures are the waterfall, both steps, and the dots of their steps.
    assert not re.search(r"<(script|link|img|iframe)", page)
    assert len(page) < 1_000_000


HOSTILE = "<script>alert(1)</script>|[a](b)@everyone https://evil.example #12"


def test_a_hostile_name_stays_text_in_markdown_and_html():
    found = run_of("a" * 16)
    named = replace(found, manifest=msgspec.structs.replace(found.manifest, name=HOSTILE))
    comparison = compare(side(named), side(run_of("b" * 16)))
    page = html_report.comparison_html(comparison)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    text = compare_text.markdown(comparison)
    assert "<script>" not in text
    assert "https://evil" not in text
    assert "@everyone" not in text
    assert "\\[a\\](b)" in text


def test_three_runs_per_side_are_averaged_and_named():
    a = [
        run_of(f"{i:016x}", ledger=(("idle", "data_wait", ns, None),))
        for i, ns in enumerate((99_000_000, 100_000_000, 101_000_000))
    ]
    b = [
        run_of(f"{i + 8:016x}", ledger=(("idle", "data_wait", ns, None),))
        for i, ns in enumerate((79_000_000, 80_000_000, 81_000_000))
    ]
    comparison = compare(side(*a), side(*b))
    assert comparison.best.a == pytest.approx(100)
    assert comparison.verdict.word == "faster"
    assert "3 and 3 runs" in compare_words.certainty(comparison)
    assert "95\u00a0% interval" in compare_words.certainty(comparison)


@pytest.mark.slow
def test_several_runs_of_the_second_side_come_after_the_option_to(tmp_path):
    # Three runs a side take 1.0 ± 0.02 and 0.8 ± 0.02 ms. Each run counts once.
    files = {}
    for side_name, step_us in (("a", 1000), ("b", 800)):
        for i, off in enumerate((-20, 0, 20)):
            loop = matmul_loop(steps=6, step_us=step_us + off, matmul_us=0.5 * step_us)
            files[side_name, i] = str(loop.write(tmp_path / f"{side_name}{i}.json"))
    a, b = ([files[name, i] for i in range(3)] for name in "ab")
    options = ["--json", "--data", str(tmp_path / "data")]
    found = json.loads(run(*a, "--to", *b, *options).stdout)
    assert [len(found[side]["runs"]) for side in "ab"] == [3, 3]
    assert found["verdict"] == "faster" and "3 and 3 runs" in found["best_step_time_ms"]["why"]
    by_commas = json.loads(run(",".join(a), ",".join(b), *options).stdout)
    assert by_commas["best_step_time_ms"]["ci95_ms"] == pytest.approx(found["best_step_time_ms"]["ci95_ms"])
    assert "Write --to before" in str(run(*a, *options).exception)
    assert "before --to" in str(run("--to", *b, *options).exception)
    assert "needs at least one run" in str(run(*a, "--to", *options).exception)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["a", "--to", "b", "c", "--json"], ["a", "--to", "b", "--to", "c", "--json"]),
        (["--to", "b", "--data", "x"], ["--to", "b", "--data", "x"]),
        (["--json", "a", "b"], ["--json", "a", "b"]),
    ],
)
def test_each_argument_after_the_option_to_belongs_to_the_second_side(given, reported):
    assert each_with_option(given, "--to") == reported
