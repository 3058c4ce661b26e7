"""Tests of `sawtooth runs`: list, tag, rename, prune and open runs."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from sawtooth.analysis import result_cache
from sawtooth.analysis.store.library import Library
from sawtooth.app.commands import runs
from sawtooth.app.commands.runs import size_of
from sawtooth.app.served_address import ServedAddress, keep_address
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import RecordingRef, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.command_line import run
from tests.support.servers import free_port


def test_runs_are_listed_and_changed(data: str) -> None:
    identifier = json.loads(run("runs", "--json", "--data", data).stdout)[0]["id"]
    assert run("report", "My\u00a0first run", "--data", data).exit_code == 0  # A name copied from a page has such spaces.
    assert run("runs", "tag", identifier, "baseline", "batch_size=64", "--data", data).output.endswith(
        "baseline, batch_size=64\n"
    )
    assert run("runs", "tag", "--data", data, identifier, "--", "-baseline").output.endswith("batch_size=64\n")
    assert run("runs", "rename", identifier, "second name", "--data", data).exit_code == 0
    row = run("runs", "--data", data).output
    assert row.startswith(identifier) and "second name" in row and "batch_size=64" in row
    assert run("runs", "prune", "--max-size", "1kB", "--data", data).exit_code == 0  # A run with a tag stays.
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
    answer = run("compare", first, second, "--data", data).output
    assert f"({first[:6]})" in answer and f"({second[:6]})" in answer


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
    assert opened == ["opened", "closed"], "a report stores its analysis but no card"
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
    answer = run("runs", "prune", "--max-size", "1KB", "--data", data).output
    assert "Removed" not in answer and answer.rstrip().endswith("The remaining runs have tags, so they were not removed.")


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
    # 50 + 30 MB and 2 MB of the trace
    assert "Removed" not in run("runs", "prune", "--max-size", "90MB", "--data", data).output
    for further in (["--dry-run"], []):
        answer = run("runs", "prune", "--max-size", "60MB", "--data", data, *further).output.replace("\u00a0", " ")
        assert manifest.id in answer and "alone" not in answer, further  # Without the oldest, the rest fits.
        assert "take 50.0 MB; the limit is 60.0 MB." in answer, further
        assert not further or re.search(r"Would remove .*, 3[12]\.\d MB\.", answer)
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


def test_a_run_is_opened_in_the_running_dashboard(data: str) -> None:
    port = free_port()
    refused = run("runs", "open", "my first run", "--port", str(port), "--data", data)
    assert isinstance(refused.exception, UsageError)
    assert f"sawtooth serve --port {port}" in str(refused.exception)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_stcore/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_opening_a_run_opens_its_verdict_and_prints_no_secret(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[str] = []
    monkeypatch.setattr("webbrowser.open", visited.append)
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as dashboard:
        threading.Thread(target=dashboard.serve_forever, daemon=True).start()
        with keep_address(DataFolder(Path(data)), ServedAddress(port=dashboard.server_port)):  # without --port
            opened = run("runs", "open", "my first run", "--data", data)
        reported = run("runs", "open", "my first run", "--port", str(dashboard.server_port), "--data", data)
        dashboard.shutdown()
    assert reported.output == opened.output
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
    with keep_address(DataFolder(tmp_path).create(), ServedAddress("box.test", 8642, secure=True)):
        printed = run("serve", "--link", *options, "--data", str(tmp_path)).output
    assert printed.startswith(f"{expected}?launch=")
    without = run("serve", "--link", "--data", str(tmp_path)).output
    assert "no server is running for" in without and "http://127.0.0.1:8501/?launch=" in without


def test_pruning_an_example_says_how_to_restore_it(data: str) -> None:
    folder = DataFolder(Path(data))
    (manifest,) = folder.manifests()
    folder.write_manifest(msgspec.structs.replace(manifest, bundled=True))
    assert "an example, which `sawtooth demo` brings back" in run("runs", "prune", "--max-size", "1kB", "--data", data).output
