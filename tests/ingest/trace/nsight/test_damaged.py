"""Tests of damaged, hostile or foreign files, each of which gives one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.trace.nsight import database
from tests.support import nsight_export as export

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


def refusal(tmp_path, folder, made=None, content=None, statements=(), name="export.sqlite"):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    else:
        export.write(path, made, statements)
    with pytest.raises(SourceError) as refused:
        ingest_file(path, folder)
    assert not list(folder.recordings.iterdir()) and not list(folder.sources.iterdir())
    sentence = str(refused.value)
    assert len(sentence) < 300 and str(tmp_path) not in sentence
    return refused.value.code, sentence


@pytest.mark.parametrize("odd", ["<b>x", b"\x00\xff", 2**63 - 1, 1.5e300, None])
@pytest.mark.parametrize("key", ["gpuId", "cudaId", "pid"])
def test_only_invalid_gpu_values_are_lost(ask, key, odd):
    made = export.tables()
    made["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 0, "cudaId": 0, "pid": export.PID, key: odd}]
    (rows,) = ask(made, "SELECT DISTINCT device FROM gpu_ops")
    assert rows == [(0,)]


def test_only_rows_with_wrong_types_are_lost(ask):
    made = export.tables()
    made[KERNEL][0]["start"] = "soon"
    made[KERNEL][1]["deviceId"] = b"\x00\xff"
    made[KERNEL][2]["demangledName"] = "17"
    made[KERNEL][3]["end"] = 0
    rows, notes = ask(
        made,
        "SELECT count(*) FROM gpu_ops WHERE kind = 'kernel'",
        "SELECT key, count FROM diagnostics WHERE severity = 'data_loss' ORDER BY 1",
    )
    assert rows == [(6,)]
    assert notes == [("time_negative", 1), ("time_open", 1)]


def test_hostile_strings_stay_names(ask):
    made = export.tables()
    made["StringIds"][0]["value"] = b"\xff\xfe'; DROP TABLE names; --\x00<script>"
    made["ThreadNames"][0]["nameId"] = 1
    (rows,) = ask(made, "SELECT DISTINCT name FROM gpu_ops JOIN names USING (name_id) WHERE kind = 'kernel'")
    assert rows[0][0].startswith("\ufffd\ufffd'; DROP TABLE names; --")


def test_views_and_virtual_tables_are_not_read(ask):
    made = export.tables()
    kernels = made.pop(KERNEL)
    made["elsewhere"] = kernels
    (kinds,) = ask(made, "SELECT DISTINCT kind FROM gpu_ops", statements=[f'CREATE VIEW "{KERNEL}" AS SELECT * FROM elsewhere'])
    assert kinds == [("memcpy",)]


@pytest.mark.parametrize("size", [0.3, 0.9])
def test_a_truncated_export_is_reported(tmp_path, folder, size):
    content = export.write(tmp_path / "whole", export.tables()).read_bytes()
    code, sentence = refusal(tmp_path, folder, content=content[: int(len(content) * size)])
    assert code == "E-TRUNC" and "cut off" in sentence and "nsys export" in sentence


def test_damaged_pages_are_reported(tmp_path, folder):
    content = bytearray(export.write(tmp_path / "whole", export.tables()).read_bytes())
    content[4096:] = b"\xee" * (len(content) - 4096)
    code, sentence = refusal(tmp_path, folder, content=bytes(content))
    assert code == "E-JSON" and "damaged" in sentence


def test_another_database_is_not_an_export(tmp_path, folder):
    code, sentence = refusal(tmp_path, folder, {"customers": [{"name": "x"}]})
    assert code == "E-TYPE" and "without the tables of Nsight Systems" in sentence


@pytest.mark.parametrize(("lost", "says"), [("end", "no column end"), (None, "has no GPU operation")])
def test_missing_tables_are_named(tmp_path, folder, lost, says):
    made = export.tables()
    remaining = {"StringIds": made["StringIds"]}
    if lost:
        remaining[KERNEL] = [{key: value for key, value in row.items() if key != lost} for row in made[KERNEL]]
    assert says in refusal(tmp_path, folder, remaining)[1]


def test_unusable_times_are_reported(tmp_path, folder):
    rows = [{"start": "a", "end": "b", "deviceId": 0}] * 3
    code, sentence = refusal(tmp_path, folder, {"StringIds": [{"id": 1, "value": "x"}], KERNEL: rows})
    assert code == "E-NOEV" and "None of the 3 events" in sentence


def test_a_too_large_row_and_a_too_slow_file_are_refused(tmp_path, folder, monkeypatch):
    made = export.tables()
    monkeypatch.setattr(database, "MAX_VALUE_BYTES", 4096)
    made[NVTX][0]["text"] = "x" * 10_000
    assert refusal(tmp_path, folder, made)[0] == "E-LIMIT"
    monkeypatch.setattr(database, "MAX_BATCH_S", -1.0)
    monkeypatch.setattr(database, "OPCODES_PER_CLOCK_CHECK", 1)
    code, sentence = refusal(tmp_path, folder, export.tables())
    assert code == "E-LIMIT" and "takes longer" in sentence


def test_large_blobs_in_other_tables_are_not_read(ask, monkeypatch):
    monkeypatch.setattr(database, "MAX_VALUE_BYTES", 1 << 16)
    made = export.tables() | {"NVTX_PAYLOADS": [{"data": b"\xaa" * (1 << 20)}]}
    made[NVTX][0]["binaryData"] = "y" * 100
    assert ask(made, "SELECT count(*) FROM gpu_ops") == [[(12,)]]


@pytest.mark.slow
def test_unread_gigabytes_need_no_memory(tmp_path):
    """The sparse file has ten gigabytes of blobs, which are hashed, but never read into memory."""
    path = export.write(tmp_path / "large.sqlite", export.tables() | {"NVTX_PAYLOADS": [{"data": b"\xaa" * (1 << 20)}]})
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    pages = 10 * 10**9 // page
    with path.open("r+b") as file:
        file.seek(28)
        file.write(pages.to_bytes(4, "big"))
        file.truncate(pages * page)
    code = (
        "import sys\nfrom pathlib import Path\nfrom sawtooth.ingest.recording import ingest_file\nfrom sawtooth.ingest.schema import DataFolder\n"
        "ingest_file(Path(sys.argv[1]), DataFolder(Path(sys.argv[2])).create())\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"  # ru_maxrss starts with the value of the parent.
    )
    done = subprocess.run([sys.executable, "-c", code, path, tmp_path / "data"], capture_output=True, text=True, timeout=600)
    path.unlink()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400_000  # kB. On 23 November 2026, 210 MB were measured.


@pytest.mark.parametrize("name", ["run.nsys-rep", "run.qdrep", "renamed.bin"])
def test_for_a_report_the_message_has_the_export_command(tmp_path, folder, name):
    content = b"\x05\x00\x00\x00\x01\x08\x00" + (b"NVIDIA Nsight Systems" if name == "renamed.bin" else b"") + bytes(200)
    code, sentence = refusal(tmp_path, folder, content=content, name=name)
    assert code == "E-TYPE" and "nsys export --type sqlite" in sentence
