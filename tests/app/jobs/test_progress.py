"""Tests of a job's messages about a trace while the rest is computed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sawtooth.app.format import share
from sawtooth.app.jobs import child, ingest_files
from sawtooth.app.jobs.job_files import JobFile, JobOutcome, JobProgress, JobRequest
from sawtooth.app.jobs.queue import child_command
from tests.support.chrome_trace import matmul_loop


def test_a_trace_has_a_preview_before_its_analysis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = matmul_loop().write(tmp_path / "trace.json")
    reported: list[JobProgress] = []
    before_deriving: list[str] = []
    derive = ingest_files.ensure_derived

    def noted(*given: Any) -> Path:
        before_deriving.append(reported[-1].seen)
        return derive(*given)

    monkeypatch.setattr(ingest_files, "ensure_derived", noted)
    order = JobRequest(str(tmp_path / "data"), [JobFile(str(trace), trace.name, trace.stat().st_size)])
    outcome = child.run(order, reported.append)
    assert len(before_deriving) == 1 and before_deriving[0].endswith(f"4 steps, GPU busy {share(2800 / 3700)} of the recording")
    assert reported[-1].runs == outcome.run_ids and reported[-1].seen == before_deriving[0]


def test_each_file_that_cannot_be_read_is_named_with_its_reason(tmp_path: Path) -> None:
    """Of eight bad files dropped together, only one reason was shown.

    The page, the API and the command line list each file.
    """
    files = []
    for number in range(8):
        path = tmp_path / f"bad-{number}.json"
        path.write_bytes(b"" if number % 2 else b"%PDF-1.7")
        files.append(JobFile(str(path), path.name, path.stat().st_size))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.json").write_bytes(msgspec.json.encode(JobRequest(str(tmp_path / "data"), files)))
    with subprocess.Popen(child_command(folder), stdin=subprocess.PIPE) as process:  # The child ends when its input ends.
        assert process.wait(120) == 1
    outcome = msgspec.json.decode((folder / "result.json").read_bytes(), type=JobOutcome)
    assert outcome.sentence.startswith("bad-0.json: ") and "PDF" in outcome.sentence
    assert [notice.split(":")[0] for notice in outcome.notices] == [f"Left out bad-{number}.json" for number in range(1, 8)]
    assert "is empty" in outcome.notices[0] and "PDF" in outcome.notices[1]
