"""Tests of cleanups: which leftovers of ended processes they remove."""

import os
import subprocess
import sys

from sawtooth.app.jobs import leftovers
from sawtooth.ingest.files import remove_all_abandoned_drafts
from sawtooth.ingest.schema import DRAFT_PREFIX, DataFolder
from tests.support.paths import ROOT


def test_a_sweep_keeps_drafts_of_other_processes(tmp_path):
    folder = DataFolder(tmp_path).create()
    (folder.runs / f"{DRAFT_PREFIX}dead").write_bytes(b"half a manifest")
    code = (
        "import sys; from pathlib import Path; from sawtooth.ingest.files import draft_folder\n"
        "with draft_folder(Path(sys.argv[1])) as place:\n    print('up', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder.derived)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as other:
        other.stdout.readline()
        remove_all_abandoned_drafts(folder, older_than_s=0)
        assert [path.parent.name for path in folder.root.rglob(f"{DRAFT_PREFIX}*")] == ["derived"]
        other.kill()
        other.wait()
        remove_all_abandoned_drafts(folder, older_than_s=0)
    assert list(folder.root.rglob(f"{DRAFT_PREFIX}*")) == []


def test_a_job_folder_without_a_valid_order_is_swept_early(tmp_path):
    folder = DataFolder(tmp_path).create()
    (folder.uploads / "job-1").mkdir()
    (folder.uploads / "job-2").mkdir()
    (folder.uploads / "job-2" / "job.json").write_bytes(b"{cut")
    (folder.uploads / "job-3").mkdir()
    (folder.uploads / "job-3" / "job.json").write_bytes(b'{"data": "\xcd\xff"}')
    now = (folder.uploads / "job-1").stat().st_mtime
    assert leftovers.remove_leftovers(folder.uploads, now + 1) == 2
    assert leftovers.remove_leftovers(folder.uploads, now + leftovers.MAX_AGE_WITHOUT_REQUEST_S + 1) == 1
