"""Tests of faults during an ingest. The data folder has complete recordings and nothing else."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.files import draft_file, remove_abandoned_drafts
from sawtooth.ingest.recording import ingest_file, read_ref
from sawtooth.ingest.schema import DRAFT_PREFIX, DataFolder
from tests.support import sound_trace
from tests.support.paths import ROOT

INGEST = """
import resource, sys
from pathlib import Path
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
if int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
stages = []
def report(progress):
    if progress.stage not in stages:
        stages.append(progress.stage)
        print(progress.stage, flush=True)
        if progress.stage == sys.argv[4]:
            sys.stdin.read()  # wait to be killed
try:
    print(ingest_file(Path(sys.argv[1]), DataFolder(Path(sys.argv[2])), progress=report).id)
except SourceError as refusal:
    print(refusal.code)
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    path.write_bytes(gzip.compress(sound_trace.text(sound_trace.sound(sound_trace.sound_events(2000)))))
    return path


def start(trace, folder, max_file_bytes=0, stop_at=""):
    command = [sys.executable, "-c", INGEST, str(trace), str(folder), str(max_file_bytes), stop_at]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.sweep(1)
@pytest.mark.parametrize("stage", ["reading", "linking", "keeping"])
def test_a_killed_ingest_leaves_only_a_draft_to_sweep(tmp_path, trace, stage):
    with start(trace, tmp_path, stop_at=stage) as process:
        for line in process.stdout:
            if line.strip() == stage:
                break
        process.kill()
    folder = DataFolder(tmp_path)
    assert all(DRAFT_PREFIX in name for name in files(tmp_path))
    for place in (folder.recordings, folder.sources):
        remove_abandoned_drafts(place, older_than_s=0)
    assert files(tmp_path) == []
    ref = ingest_file(trace, folder)
    assert len(files(tmp_path)) == 2 and read_ref(folder.recording_file(ref.id)) == ref


@pytest.mark.sweep(1)
@pytest.mark.parametrize("max_file_bytes", [4096, 100_000, 600_000])
def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path, trace, max_file_bytes):
    # A limit on the size of files replaces the full disk, because a write beyond the limit fails as on a full disk.
    with start(trace, tmp_path, max_file_bytes) as process:
        output = process.stdout.read().split()
        process.stdin.close()
    assert output[-1] == "E-DISK"
    assert files(tmp_path) == []


def test_a_draft_in_use_is_not_swept(tmp_path):
    with draft_file(tmp_path) as path:
        path.write_bytes(b"x")
        remove_abandoned_drafts(tmp_path, older_than_s=0)
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_recording_is_replaced(tmp_path, trace):
    folder = DataFolder(tmp_path)
    ref = ingest_file(trace, folder)
    path = folder.recording_file(ref.id)
    path.write_bytes(b"damaged" * 1000)
    assert ingest_file(trace, folder) == ref
    with duckdb.connect(str(path), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM cpu_ops").fetchall() == [(6000,)]  # Three per step.


def test_a_read_only_folder_is_reported(tmp_path, trace):
    (tmp_path / "recordings").write_text("a file where a folder belongs")
    with pytest.raises(SourceError) as refusal:
        ingest_file(trace, DataFolder(tmp_path))
    assert refusal.value.code == "E-DISK" and str(tmp_path) not in str(refusal.value)
