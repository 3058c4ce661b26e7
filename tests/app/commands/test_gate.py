"""Tests of ``sawtooth gate`` and the GitHub action: baselines, exit codes and summary.

The action updates one comment.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner, Result

from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.app.cli import cli
from sawtooth.app.reports.github import MAX_COMMENT_CHARACTERS, Job, add_to_summary, cut
from sawtooth.app.runs.baselines import fetch_baseline, store_baseline
from sawtooth.ingest.errors import UsageError
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import ROOT

ACTION = ROOT / ".github" / "actions" / "gate"
VARIABLES = ("GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_API_URL", "GITHUB_EVENT_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")


class _GitHub(ThreadingHTTPServer):
    """The part of GitHub's API that is used; ``allowed`` is False for a fork's token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = [{"id": i, "body": f"comment {i}"} for i in range(130)]
        self.artifacts: dict[int, bytes] = {}
        self.allowed = True
        self.calls: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: _GitHub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, content: Any, status: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        store = self.server
        assert self.headers["Authorization"] == "Bearer secret-of-the-job" or self.path.startswith("/blob/")
        if self.path.startswith("/repos/me/net/issues/7/comments"):
            page = int(re.search(r"page=(\d+)$", self.path).group(1))  # type: ignore[union-attr]
            self._answer(store.comments[100 * (page - 1) : 100 * page])
        elif self.path.startswith("/repos/me/net/actions/artifacts?"):
            self._answer({"artifacts": [{"id": i, "name": "steps", "created_at": f"2026-01-{i:02}"} for i in store.artifacts]})
        elif self.path.endswith("/zip"):  # GitHub redirects to a store that must not see the token
            self.send_response(302)
            self.send_header("Location", f"/blob/{self.path.split('/')[-2]}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            assert self.headers["Authorization"] is None
            self._answer(store.artifacts[int(self.path.rpartition("/")[2])])

    def _write(self) -> None:
        store = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        store.calls.append(self.command)
        if not store.allowed:
            self._answer({"message": "Resource not accessible by integration"}, 403)
        elif self.command == "POST":
            store.comments.append({"id": 1000, "body": body})
            self._answer(store.comments[-1], 201)
        else:
            mine = next(item for item in store.comments if item["id"] == int(self.path.rpartition("/")[2]))
            mine["body"] = body
            self._answer(mine)

    do_POST = do_PATCH = _write  # noqa: N815


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_GitHub]:
    server = _GitHub()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
    values = (
        "secret-of-the-job",
        "me/net",
        f"http://127.0.0.1:{server.server_port}",
        *(str(tmp_path / name) for name in ("event.json", "summary.md", "output")),
    )
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def traces(tmp_path: Path) -> tuple[str, str, str]:
    """Return recordings of a loop and of one four times as slow, and the options of all commands."""
    typical = matmul_loop(steps=6).write(tmp_path / "usual.json")
    slow = matmul_loop(steps=6, step_us=4000, matmul_us=500).write(tmp_path / "slow.json")
    return str(typical), str(slow), str(tmp_path / "data")


def gate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gate", *arguments])


def _steps(inputs: dict[str, str], workspace: Path) -> list[tuple[str, int]]:
    """Run the action's steps as a runner does, and return the name and exit code of each.

    ``uses`` steps are left out.
    """
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    known = {name: str(item.get("default", "")) for name, item in action["inputs"].items()} | inputs
    outputs: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        kind, _, name = match.group(1).partition(".")
        if kind == "inputs":
            return known[name].replace("${{ github.token }}", os.environ["GITHUB_TOKEN"])
        return str(ACTION) if name == "action_path" else outputs.get(name.rpartition(".")[2], "")

    ran = []
    for step in action["runs"]["steps"]:
        if "run" not in step:
            continue
        assert "${{" not in step["run"], "an input inside the script's text could run code"
        environment = {name: re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text) for name, text in step["env"].items()}
        file = workspace / "step-output"
        file.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=workspace,
            env={**os.environ, **environment, "GITHUB_OUTPUT": str(file)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        outputs |= dict(line.split("=", 1) for line in file.read_text().splitlines())
        ran.append((step["name"], done.returncode))
    return ran


def test_a_baseline_is_stored_and_the_action_fails_a_slower_build_last(
    traces: tuple[str, str, str], tmp_path: Path, github: _GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    typical, slow, data = traces
    place = str(tmp_path / "store")
    missing = gate(typical, "--baseline", place, "--data", data)
    assert missing.exit_code == 2 and "There is no baseline baseline" in missing.output
    assert gate(typical, "--baseline", place, "--data", data, "--update").exit_code == 0
    passed = gate(
        typical, "--baseline", f"{place}/baseline.sawtooth", "--fail-on", "gpu_busy_share:-50%", "--data", data, "--json"
    )
    assert passed.exit_code == 0 and json.loads(passed.output)["gates"][0]["exit_code"] == 0
    assert isinstance(gate(typical, "--baseline", place, "--name", "../x", "--data", data).exception, UsageError)

    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"  # pip only lists what it would install.
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$@" >>"{tmp_path}/pip"; else exec "{sys.executable}" "$@"; fi\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SAWTOOTH_DATA", data)
    (tmp_path / "summary.md").unlink()
    inputs = {"recording": f"{slow}\n", "baseline": place, "fail-on": "best_step_time_ms:+5%\ngpu_busy_share:-90%"}
    assert _steps(inputs, tmp_path) == [("Install Sawtooth", 0), ("Compare", 0), ("Result", 1)]
    assert (tmp_path / "pip").read_text().split()[-1] == f"{ACTION}/../../.."
    described = yaml.safe_load((ACTION / "action.yml").read_text())["outputs"]["verdict"]["description"]
    assert set(re.findall(r"\w+", described)) == {*get_args(Answer), "no_baseline", "or"}
    summary = (tmp_path / "summary.md").read_text()
    assert "best_step_time_ms:+5%: failed" in summary and "gpu_busy_share:-90%: " in summary and "2.5 % of builds" in summary
    (mine,) = [item for item in github.comments if "<!-- sawtooth-gate:baseline -->" in item["body"]]
    assert mine["id"] == 1000 and "best_step_time_ms:+5%: failed" in mine["body"]


def test_one_comment_is_replaced_and_a_refused_one_is_not_an_error(github: _GitHub) -> None:
    job = Job.of_environment()
    assert job is not None and job.pull_request == 7
    assert job.comment("<!-- mine -->", "<!-- mine --> first") and job.comment("<!-- mine -->", "<!-- mine --> second")
    assert github.calls == ["POST", "PATCH"]  # The comment is found, although 130 other comments come first.
    assert [item["body"] for item in github.comments if "mine" in item["body"]] == ["<!-- mine --> second"]
    github.allowed = False
    assert job.comment("<!-- mine -->", "<!-- mine --> third") is False


def test_baselines_come_from_folders_and_artifacts(tmp_path: Path, github: _GitHub) -> None:
    assert fetch_baseline("artifact:steps", "mine", tmp_path) is None
    for i, content in ((3, b"old"), (12, b"new")):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("../mine.sawtooth", content)
        github.artifacts[i] = packed.getvalue()
    newest = fetch_baseline("artifact:steps", "mine", tmp_path)
    assert newest is not None and (newest.parent, newest.read_bytes()) == (tmp_path, b"new")
    for place in (str(tmp_path / "store"), str(tmp_path / "one.sawtooth")):
        assert fetch_baseline(place, "net", tmp_path) is None
        store_baseline(newest, place, "net")
        again = fetch_baseline(place, "net", tmp_path)
        assert again is not None and again.read_bytes() == b"new"
    with pytest.raises(UsageError, match="Only the workflow can upload"):
        store_baseline(newest, "artifact:steps", "mine")


def test_long_texts_are_cut_at_the_end_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "<details>\n```text\n" + "row\n" * 40_000
    short = cut(text, MAX_COMMENT_CHARACTERS)
    assert len(short) <= MAX_COMMENT_CHARACTERS and short.count("```") == 2 and "</details>" in short and "the rest" in short
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for _ in range(3):
        assert add_to_summary("é" * 500_000)
    assert (tmp_path / "summary.md").stat().st_size <= 1 << 20
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    assert Job.of_environment() is None
