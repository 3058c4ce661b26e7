"""Tests of the common command line: options, output suffixes, folders, and lists of runs.

All commands have the same options, a suffix selects the format, a folder includes everything below it, and runs can be
listed and changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import unicodedata
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from typer.testing import CliRunner, Result

from sawtooth.analysis import result_cache
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli, main
from sawtooth.app.commands import inputs, output, runs
from sawtooth.app.commands.runs import size_of
from sawtooth.app.printable import json_text
from sawtooth.app.served_address import Served, keep_address
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import RecordingRef, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import ROOT
from tests.support.servers import free_port


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Return a folder with one run in it and another in a folder below."""
    folder = tmp_path / "traces"
    (folder / "below").mkdir(parents=True)
    matmul_loop(steps=6).write(folder / "first.json")
    matmul_loop(steps=6, step_us=800, matmul_us=400).write(folder / "below" / "second.json")
    return folder


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ingested")
    trace = matmul_loop(steps=6).write(place / "first.json")
    assert run("ingest", str(trace), "--name", "my  first run", "--data", str(place / "data")).exit_code == 0
    return place / "data"


@pytest.fixture
def data(ingested: Path, tmp_path: Path) -> str:
    """Return a data folder of the test's own, with one run."""
    return str(shutil.copytree(ingested, tmp_path / "data"))


@pytest.mark.parametrize(
    "command", ["report", "compare", "sweep", "ingest", "map", "reduce", "export", "import", "runs", "serve", "demo", "doctor"]
)
def test_every_command_has_a_short_help(command: str) -> None:
    assert "Usage" in run(command, "-h").output


def test_help_and_version_load_nothing_but_the_table_of_commands() -> None:
    for option in ("--help", "--version"):
        asks = f"import sys; sys.argv = ['sawtooth', {option!r}]; from sawtooth.app.cli import cli; cli(standalone_mode=False); print(sorted(sys.modules))"
        loaded = subprocess.run(
            [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
        ).stdout
        assert "'sawtooth.app.cli'" in loaded
        assert not [name for name in ("numpy", "pandas", "scipy", "streamlit", "duckdb", "plotly") if f"'{name}'" in loaded]


@pytest.mark.parametrize("module", ["sawtooth.app.commands.serve", "sawtooth.app.commands.run", "sawtooth.app.commands.sample"])
def test_commands_that_start_programs_start_at_once(module: str) -> None:
    """A command that starts another process starts at once.

    The server and the training load their own modules, which would otherwise be loaded twice.
    """
    asks = f"import sys, {module}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    ).stdout
    assert not [name for name in ("numpy", "pandas", "scipy", "streamlit", "plotly") if f"'{name}'" in loaded]


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("sawtooth.app.commands.report", ("scipy", "jinja2", "streamlit", "plotly.graph_objs")),
        ("sawtooth.app.commands.compare", ("scipy", "jinja2", "streamlit", "plotly.graph_objs")),
        ("sawtooth.ingest.trace.torch_json.worker", ("pandas", "duckdb", "scipy", "jinja2")),
        ("sawtooth.analysis.store.sql_process", ("pandas", "numpy", "pyarrow", "scipy")),
    ],
)
def test_a_command_and_a_reading_process_load_only_what_they_use(module: str, left_out: tuple[str, ...]) -> None:
    asks = f"import sys, {module}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    ).stdout
    assert f"'{module}'" in loaded
    assert not [name for name in left_out if f"'{name}'" in loaded]


def test_a_folder_means_all_files_in_it_and_each_run_is_reported(traces: Path, tmp_path: Path) -> None:
    found = run("report", str(traces), "--each", "--format", "json", "--data", str(tmp_path / "d"))
    assert {r["run"]["name"] for r in json.loads(found.stdout)} == {"first", "second"}
    refused = run("report", str(traces))
    assert isinstance(refused.exception, UsageError)
    assert "are 2 runs (" in str(refused.exception) and "Add --each for all of them, or give" in str(refused.exception)
    refused = run("report", str(traces), "--each", "-o", str(tmp_path / "r.html"), "--data", str(tmp_path / "none"))
    assert isinstance(refused.exception, UsageError) and "an HTML report is about one run" in str(refused.exception)
    assert not (tmp_path / "none").exists()  # said before anything is read


def test_the_suffix_decides_the_format(traces: Path, tmp_path: Path) -> None:
    trace = str(traces / "first.json")
    for name, begins in (("r.json", "{"), ("r.md", "<!-- sawtooth"), ("r.html", "<!doctype"), ("r.txt", "first")):
        out = tmp_path / name
        assert run("report", trace, "-o", str(out)).exit_code == 0
        assert out.read_text(encoding="utf-8").lstrip().startswith(begins)
    refused = run("report", trace, "--out", str(tmp_path / "r.pdf"))
    assert isinstance(refused.exception, UsageError) and "--format" in str(refused.exception)


def test_a_folder_with_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".hidden").mkdir(parents=True)
    (tmp_path / "empty" / ".hidden" / "x.json").write_text("{}")
    for command in ("ingest", "report"):
        refused = run(command, str(tmp_path / "empty"), "--data", str(tmp_path / "data"))
        assert isinstance(refused.exception, UsageError) and "neither a trace nor telemetry" in str(refused.exception)


def test_several_recordings_per_side_may_be_in_one_folder(traces: Path, tmp_path: Path) -> None:
    found = run("compare", str(traces), str(traces / "first.json"), "--format", "json", "--data", str(tmp_path / "d"))
    assert found.exit_code == 0, found.exception
    assert len(json.loads(found.stdout)["a"]["runs"]) == 2


def test_runs_are_listed_and_changed(data: str) -> None:
    identifier = json.loads(run("runs", "--json", "--data", data).stdout)[0]["id"]
    assert run("report", "My\u00a0first run", "--data", data).exit_code == 0  # as copied from a page
    assert run("runs", "tag", identifier, "baseline", "batch_size=64", "--data", data).output.endswith(
        "baseline, batch_size=64\n"
    )
    assert run("runs", "tag", "--data", data, identifier, "--", "-baseline").output.endswith("batch_size=64\n")
    assert run("runs", "rename", identifier, "second name", "--data", data).exit_code == 0
    row = run("runs", "--data", data).output
    assert row.startswith(identifier) and "second name" in row and "batch_size=64" in row
    assert run("runs", "prune", "--max-size", "1kB", "--data", data).exit_code == 0  # it has a tag: it stays
    assert identifier in run("runs", "--data", data).output
    assert run("runs", "rm", "second name", "--data", data).exit_code == 0
    assert f"There are no runs in {data}." in run("runs", "--data", data).output


def test_the_list_has_verdicts_and_distinct_names(data: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not analysed yet" in run("runs", "--data", data).output
    assert run("report", "my first run", "--data", data).exit_code == 0
    assert "not analysed yet" not in run("runs", "--data", data).output
    monkeypatch.setattr(result_cache, "analysis_code", lambda: "of the next version")
    listed = run("runs", "--data", data).output
    (run_id,) = (manifest.id for manifest in DataFolder(Path(data)).manifests())
    assert f"analysed by an older version: open it or run `sawtooth report {run_id}`" in listed
    monkeypatch.undo()
    second = run("ingest", str(traces / "below" / "second.json"), "--name", "my  first run", "--data", data).output.split()[-1]
    (first,) = [r["id"] for r in json.loads(run("runs", "--json", "--data", data).stdout) if r["id"] != second]
    said = run("compare", first, second, "--data", data).output
    assert f"({first[:6]})" in said and f"({second[:6]})" in said


def test_the_list_opens_recordings_only_for_an_analysis_without_its_card(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Watched(Library):
        def __enter__(self) -> Watched:
            opened.append("opened")
            return super().__enter__()

        def close(self) -> None:
            opened.append("closed")
            super().close()

    monkeypatch.setattr(runs, "Library", Watched)
    run("runs", "--data", data)
    assert opened == [], "nothing is analysed yet"
    run("report", "my first run", "--data", data)
    listed = run("runs", "--data", data).output
    assert opened == ["opened", "closed"], "a report keeps its analysis and makes no card"
    assert run("runs", "--data", data).output == listed and len(opened) == 2


def test_prune_removes_the_oldest_runs_until_the_rest_fits(data: str, traces: Path) -> None:
    oldest = json.loads(run("runs", "--json", "--data", data).stdout)[0]["id"]
    assert run("ingest", str(traces / "below" / "second.json"), "--data", data).exit_code == 0
    size = sum(p.stat().st_size for p in Path(data).rglob("*") if p.is_file())
    limit = str(size * 3 // 4)
    assert "Would remove" in run("runs", "prune", "--max-size", limit, "--dry-run", "--data", data).output
    run("runs", "prune", "--max-size", limit, "--data", data)
    left = [found["id"] for found in json.loads(run("runs", "--json", "--data", data).stdout)]
    assert oldest not in left and len(left) == 1
    run("runs", "tag", left[0], "kept=1", "--data", data)
    said = run("runs", "prune", "--max-size", "1KB", "--data", data).output
    assert "Removed" not in said and said.rstrip().endswith("The remaining runs have tags, so they were not removed.")


def test_prune_counts_shared_files_once(data: str) -> None:
    folder = DataFolder(Path(data))
    (manifest,) = folder.manifests()
    shared, summaries = "a" * 16, "b" * 16
    folder.recording_file(shared).write_bytes(bytes(40_000_000))
    folder.derived.joinpath(f"{shared}.1.sums.duckdb").write_bytes(bytes(10_000_000))
    folder.summaries_file(summaries).write_bytes(bytes(30_000_000))
    telemetry = RecordingRef(shared, "telemetry", "shared.jsonl")
    folder.write_manifest(
        msgspec.structs.replace(manifest, recordings=[*manifest.recordings, telemetry], summaries=summaries, created_ns=1)
    )
    folder.write_manifest(new_manifest([telemetry], "alone"))
    assert "Removed" not in run("runs", "prune", "--max-size", "90MB", "--data", data).output  # 50 + 30 and the trace's 2
    for further in (["--dry-run"], []):
        said = run("runs", "prune", "--max-size", "60MB", "--data", data, *further).output.replace("\u00a0", " ")
        assert manifest.id in said and "alone" not in said, further  # without the oldest the rest fits
        assert "take 50.0 MB; the limit is 60.0 MB." in said, further
        assert not further or re.search(r"Would remove .*, 3[12]\.\d MB\.", said)
    assert not folder.summaries_file(summaries).exists() and folder.recording_file(shared).exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [("20GB", 20 * 10**9), ("500 mb", 5 * 10**8), ("1.5k", 1500), ("20GiB", 20 * 2**30), ("12000000", 12_000_000)],
)
def test_sizes_are_parsed_with_units(text: str, size: int) -> None:
    assert size_of(text) == size
    for unclear, why in (("many", "is not a size"), ("1e999", "is not a size"), ("12", "has no unit")):
        with pytest.raises(UsageError, match=why):
            size_of(unclear)


def test_ctrl_c_is_a_clean_end() -> None:
    waits = "import sys, time; from sawtooth.app import cli as c; c.cli = lambda: (print('ready', flush=True), time.sleep(60)); c.main()"
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", waits],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    _, on_stderr = child.communicate(timeout=60)
    assert (child.returncode, on_stderr) == (130, b"\nStopped.\n")


def test_an_ambiguous_name_lists_the_runs(traces: Path, data: str) -> None:
    assert run("ingest", str(traces / "below" / "second.json"), "--name", "My first run", "--data", data).exit_code == 0
    refused = run("report", "my first run", "--data", data)
    assert isinstance(refused.exception, UsageError)
    assert "names 2 runs" in str(refused.exception) and "more characters of the id" in str(refused.exception)


def test_a_run_is_opened_in_the_running_dashboard(data: str) -> None:
    port = free_port()
    refused = run("runs", "open", "my first run", "--port", str(port), "--data", data)
    assert isinstance(refused.exception, UsageError)
    assert f"sawtooth serve --port {port}" in str(refused.exception)


class Healthy(BaseHTTPRequestHandler):
    """Answers a health request as a dashboard does."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_stcore/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_opening_a_run_hands_its_verdict_to_the_browser_and_prints_no_secret(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[str] = []
    monkeypatch.setattr("webbrowser.open", visited.append)
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as dashboard:
        threading.Thread(target=dashboard.serve_forever, daemon=True).start()
        with keep_address(DataFolder(Path(data)), Served(port=dashboard.server_port)):  # the command is not given the port
            opened = run("runs", "open", "my first run", "--data", data)
        told = run("runs", "open", "my first run", "--port", str(dashboard.server_port), "--data", data)
        dashboard.shutdown()
    assert told.output == opened.output
    assert len({visited.pop(0).partition("launch=")[0], visited[0].partition("launch=")[0]}) == 1
    assert opened.exit_code == 0, opened.output
    (manifest,) = json.loads(run("runs", "--json", "--data", data).output)
    verdict = f"http://127.0.0.1:{dashboard.server_port}/verdict?run={manifest['id']}"
    assert opened.output.strip() == verdict
    (link,) = visited
    asked = parse_qs(urlsplit(link).query)
    assert link.startswith(f"http://127.0.0.1:{dashboard.server_port}/")
    assert manifest["id"] in link and link != verdict and asked, "the browser gets a link that logs it in once"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "https://box.test:8642/"),
        (["--port", "8642"], "https://box.test:8642/"),
        (["--port", "8700"], "http://127.0.0.1:8700/"),
        (["--address", "10.0.0.7"], "http://10.0.0.7:8501/"),
    ],
)
def test_a_link_belongs_to_the_running_server(tmp_path: Path, options: list[str], expected: str) -> None:
    with keep_address(DataFolder(tmp_path).create(), Served("box.test", 8642, secure=True)):
        printed = run("serve", "--link", *options, "--data", str(tmp_path)).output
    assert printed.startswith(f"{expected}?launch=")
    without = run("serve", "--link", "--data", str(tmp_path)).output
    assert "no server of" in without and "http://127.0.0.1:8501/?launch=" in without


def test_a_terminal_shows_the_headline_in_colour_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=terminal))
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output._emphasised("name\nheadline\nrest", 1) == "name\n\x1b[36m\x1b[1mheadline\x1b[0m\nrest"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output._emphasised("name\nheadline", 1) == "name\nheadline"
    monkeypatch.delenv("NO_COLOR")
    terminal.isatty = lambda: False
    assert output._emphasised("name\nheadline", 1) == "name\nheadline"


@pytest.mark.parametrize("terminal", [True, False])
def test_long_reading_shows_its_progress_on_a_terminal_and_nowhere_else(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with inputs.opened([str(traces / "below" / "second.json")], tmp_path / "data") as run:
        assert run.manifest.name == "second"
    said = capsys.readouterr().err
    assert bool(re.search(r"\rsecond\.json: .* of .*, [\d,]+ events", said)) == terminal
    assert terminal or not said


def test_a_shell_can_complete_the_commands() -> None:
    asked = os.environ | {
        "PYTHONPATH": str(ROOT),
        "_SAWTOOTH_COMPLETE": "complete_bash",
        "COMP_WORDS": "sawtooth rep",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['sawtooth']; from sawtooth.app.cli import cli; cli(prog_name='sawtooth')"
    said = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, timeout=60).stdout
    assert said.split() == ["report"]


HOSTILE = "k\x1b]0;own\x07\x1b[2J\u202e\x9b2J"


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """No name that reaches the terminal can move its cursor.

    These are names of files and runs, and of their content, in sentences about omissions, lists, reports and JSON.
    """
    folder, data = tmp_path / "in", str(tmp_path / "data")
    folder.mkdir()
    (folder / f"bad{HOSTILE}.json").write_text('{"traceEvents": []}')
    trace = matmul_loop(steps=6)
    trace.top["host_name"] = HOSTILE
    trace.write(folder / f"good{HOSTILE}.json")
    (folder / f"alone{HOSTILE}").mkdir()
    asked = [
        ("ingest", str(folder), "--name", HOSTILE),
        ("ingest", str(folder), "--json"),
        ("runs",),
        ("runs", "--json"),
        ("sweep", HOSTILE),
    ]
    asked += [("report", HOSTILE, "--format", form) for form in ("text", "json")]
    asked += [("audit", HOSTILE), ("compare", HOSTILE, HOSTILE), ("report", str(folder / f"alone{HOSTILE}")), ("doctor",)]
    for arguments in asked:
        result = run(*arguments, "--data", data)
        said = result.output + (
            str(result.exception) if result.exception and not isinstance(result.exception, SystemExit) else ""
        )
        assert not {sign for sign in result.output if unicodedata.category(sign) in ("Cc", "Cf") and sign != "\n"}, arguments
        assert said


def test_an_error_shows_a_name_without_control_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["sawtooth", "export", f"no{HOSTILE}", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert said.endswith("\n") and said.strip().isprintable()


def test_json_contains_the_same_names_escaped() -> None:
    assert json.loads(json_text({"a": HOSTILE + "é😀"})) == {"a": HOSTILE + "é😀"}
    assert "é😀" in json_text(["é😀"]) and json_text([HOSTILE]).isprintable()


def test_one_unreadable_file_does_not_affect_the_others(traces: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    done = run("ingest", str(traces / "first.json"), str(bad), "--data", str(tmp_path / "data"))
    assert done.exit_code == 2
    assert "Left out bad.json: " in done.output and "first: first.json (trace)" in done.output
    assert [m.name for m in DataFolder(tmp_path / "data").manifests()] == ["first"]


def test_pruning_an_example_says_how_to_restore_it(data: str) -> None:
    folder = DataFolder(Path(data))
    (manifest,) = folder.manifests()
    folder.write_manifest(msgspec.structs.replace(manifest, bundled=True))
    assert "an example, which `sawtooth demo` brings back" in run("runs", "prune", "--max-size", "1kB", "--data", data).output


def test_an_unknown_name_is_answered_with_a_similar_one(data: str, tmp_path: Path) -> None:
    for command in (["report", "my frist run"], ["runs", "rename", "my frist run", "x"], ["export", "my frist run"]):
        said = str(run(*command, "--data", data).exception)
        assert "Neither a run nor a file is called 'my frist run'. Did you mean my  first run?" in said
        assert f"sawtooth runs lists the 1 run in {data}." in said
    said = str(run("report", "anything", "--data", str(tmp_path / "new")).exception)
    assert "no run in" in said and "sawtooth ingest FILE" in said


def test_an_error_names_the_file_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    monkeypatch.setattr(sys, "argv", ["sawtooth", "ingest", str(tmp_path / "empty.json"), "--data", str(tmp_path / "data")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("sawtooth: empty.json: The file is empty (0 bytes).")


def test_doctor_creates_no_folder(tmp_path: Path) -> None:
    refused = run("doctor", "--data", str(tmp_path / "none"))
    assert isinstance(refused.exception, NotFoundError) and "There is no data folder" in str(refused.exception)
    assert not (tmp_path / "none").exists()


def test_a_wrong_name_is_reported_before_packages_are_loaded(data: str) -> None:
    code = "import sys\nfrom sawtooth.app import cli\nsys.argv = ['sawtooth', 'report', 'missing.json', '--data', sys.argv[1]]\ntry: cli.main()\nfinally: print([name for name in ('pandas', 'duckdb', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, data], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "[]\n"), done.stderr
    assert "Neither a run nor a file is called 'missing.json'." in done.stderr and len(done.stderr.splitlines()) == 1
