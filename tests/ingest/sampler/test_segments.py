"""Tests of a session's segments and their checksums, also on a full disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sawtooth.app.live.folders import newest_segment
from sawtooth.ingest import sampler
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import decode_line, encode_line, find_segments, join_segments, segment_name
from sawtooth.ingest.sampler.sinks import SessionSink, new_session_id
from tests.support.sampler_bench import Bench


def test_a_session_folder_has_the_documented_files(tmp_path: Path) -> None:
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(3)
    assert sink.folder is not None
    meta = json.loads((sink.folder / "meta.json").read_text())
    assert meta["columns"] == list(COLUMNS) and meta["devices"][0]["uuid"] == "GPU-a" and meta["v"] == sampler.FORMAT_VERSION
    lines = (sink.folder / "samples-0001.jsonl").read_bytes().splitlines()
    records = [decode_line(line) for line in lines]
    assert all(records)
    found = [r for r in records if r]
    assert [r["q"] for r in found] == list(range(len(found)))
    assert found[0]["k"] == "head" and found[-1]["k"] == "end"
    assert sum(r["k"] == "tick" for r in found) == 30


def test_every_damage_to_a_line_is_noticed() -> None:
    line = encode_line({"k": "tick", "m": 1, "g": [[1.5, None]]}).rstrip(b"\n")
    assert decode_line(line) == {"k": "tick", "m": 1, "g": [[1.5, None]]}
    for i in range(len(line)):
        assert decode_line(line[:i]) is None
        assert decode_line(line[:i] + bytes([line[i] ^ 1]) + line[i + 1 :]) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_line({"k": "tick", "m": float("nan")})


def test_segments_rotate_by_size_and_time_and_are_never_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.ingest.sampler.segments.SEGMENT_BYTES", 3000)
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(5)
    assert sink.folder is not None
    names = sorted(p.name for p in sink.folder.glob("samples-*"))
    assert len(names) > 2 and names[0] == "samples-0001.jsonl"
    for name in names:
        lines = (sink.folder / name).read_bytes().splitlines()
        head = decode_line(lines[0])
        assert head and head["k"] == "head" and head["devices"][1]["uuid"] == "GPU-b"


def test_the_ten_thousandth_segment_follows_those_before_it(tmp_path: Path) -> None:
    """With segments of ten minutes, a session of ten weeks has more than 9999 segments."""
    for number in (10000, 9999, 2):
        (tmp_path / segment_name(number)).write_bytes(encode_line({"k": "tick", "m": number}))
    (tmp_path / "samples-1x.jsonl").write_bytes(b"")
    assert list(find_segments(tmp_path)) == [2, 9999, 10000]
    assert find_segments(tmp_path / "none") == {}
    assert join_segments(tmp_path, tmp_path / "joined.jsonl") == 3
    records = [decode_line(line) for line in (tmp_path / "joined.jsonl").read_bytes().splitlines()]
    assert [record and record["m"] for record in records] == [2, 9999, 10000]
    assert newest_segment(tmp_path) == tmp_path / "samples-10000.jsonl"


def test_a_full_disk_causes_a_telemetry_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(("GPU-a",))
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    disk = {"full": False}
    write = os.write

    def write_unless_full(descriptor: int, data: bytes) -> int:
        if disk["full"]:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("sawtooth.ingest.sampler.segments.os.write", write_unless_full)
    bench.at = [(1, lambda: disk.update(full=True)), (5, lambda: disk.update(full=False))]
    bench.sampler.run(20)
    assert sink.folder is not None
    records = [decode_line(x) for p in sorted(sink.folder.glob("samples-*")) for x in p.read_bytes().splitlines()]
    assert all(records)
    gaps = [r for r in records if r and r.get("e") == "gap"]
    assert [g["reason"] for g in gaps] == ["the disk was full"]


def test_a_gpu_that_returns_on_a_full_disk_is_in_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(1)
    assert sink.writer is not None
    devices = sink.writer.meta["devices"]
    with monkeypatch.context() as full:
        full.setattr("sawtooth.ingest.sampler.segments.os.open", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        sink.devices(devices[:1], 10**12, 10**12)
        sink.write({"k": "tick", "m": 10**12, "w": 10**12, "g": []})
    sink.write({"k": "tick", "m": 2 * 10**12, "w": 2 * 10**12, "g": []})
    sink.close()
    head, gap, tick = (decode_line(x) for x in newest_segment(sink.writer.folder).read_bytes().splitlines())
    assert head and gap and tick
    assert head["devices"] == devices[:1]
    assert (gap["e"], gap["from_m"], gap["to_m"], tick["k"]) == ("gap", 10**12, 2 * 10**12, "tick")


def test_session_ids_are_safe_names() -> None:
    assert new_session_id(1_795_228_797_900_155_181, "no de/..\\é").startswith("20261121T023957Z-no-de")
    assert len({new_session_id(0) for _ in range(50)}) == 50
