"""Tests of dump files, of which only plain pickles are read. Other files give a sentence."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.dumps.flight_recorder import read_dumps
from sawtooth.ingest.dumps.memory_snapshot import read_snapshot
from sawtooth.ingest.dumps.plain_pickle import decode
from sawtooth.ingest.errors import SourceError, UsageError
from tests.support.command_line import run
from tests.support.dumps import call, event, flight, segment, write_flight, write_snapshot

GROUPS = {"0": [0, 1]}
PLAIN: Any = {
    "ints": [0, -1, 255, 65536, 2**31, -(2**70)], "floats": (1.5, float("inf")), "texts": ["", "é" * 300, "x" * 70_000],
    "nothing": None, "truth": [True, False], "bytes": b"\x00" * 300, "nested": {"a": {("b", 1): {1, 2}}}, "one": (1,), "three": (1, 2, 3),
}  # fmt: skip


class _Runs:
    """An object that would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_is_read_like_pickle(protocol: int) -> None:
    shared = [PLAIN, PLAIN["texts"]]
    if protocol >= 4:  # Older protocols write sets and bytes by calling a function.
        assert decode(pickle.dumps(shared, protocol)) == shared
    remaining = {key: value for key, value in PLAIN.items() if key not in ("bytes", "nested")}
    assert decode(pickle.dumps(remaining, protocol)) == remaining


def test_pickles_run_no_code(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    for value in (_Runs(trap), {"entries": [_Runs(trap)]}, Path("x"), range(3), len):
        for protocol in (2, 4, 5):
            with pytest.raises(SourceError, match="other than plain data"):
                decode(pickle.dumps(value, protocol))
    assert not trap.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04]r\xff\xff\xff\xff.",  # An array for the last index of the memo would have 64 GB.
        b"\x80\x04j\xff\xff\xff\x7f.", b"\x80\x04a.", b"\x80\x04e.", b"\x80\x04.", b"\x80\x04(", b"\x80\x04}(K\x01u.", b"\x80\x04K\x01K\x02a.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x00N.", b"\x80\x05\x97.", b"",
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused_with_a_sentence(data: bytes) -> None:
    try:
        assert decode(data) in (None, [])
    except SourceError as error:
        assert str(error)


def _copies(data: bytes) -> list[bytes]:
    """Return the file cut at fifty places, and with one byte changed at fifty places."""
    at = [round(len(data) * i / 50) for i in range(50)]
    return [data[:i] for i in at] + [data[:i] + bytes([data[i] ^ 0x5A]) + data[i + 1 :] for i in at]


def test_damaged_dumps_are_refused_or_read_completely(tmp_path: Path) -> None:
    entries = [call(seq) for seq in range(1, 20)]
    recorder = {
        as_json: write_flight(tmp_path / str(as_json), {3: flight(entries, GROUPS)}, as_json=as_json)[0]
        for as_json in (True, False)
    }
    snapshot = write_snapshot(tmp_path / "memory.pickle", [segment(0, [(1 << 20, "inactive")])], [event("alloc", 0, 512)])
    for file, read in ((recorder[True], _flight), (recorder[False], _flight), (snapshot, read_snapshot)):
        data, refused = file.read_bytes(), 0
        for i, copy in enumerate(_copies(data)):
            file.write_bytes(copy)
            try:
                read(file)
            except SourceError as error:
                refused += 1
                assert error.file == file.name and str(error).endswith((".", "?"))
            else:
                assert i >= 50, "an incomplete file was read"
        assert refused >= 50


def _flight(file: Path) -> Any:
    return read_dumps([file])


def test_files_that_are_not_dumps_are_refused_with_the_expected_form(tmp_path: Path) -> None:
    other = tmp_path / "rank_0"
    for content, sentence in (
        (pickle.dumps({"weights": 1}), "pg_config"), (b'{"traceEvents": []}', "pg_config"), (b"", "empty"), (b"\x1f\x8b\x08", "gzip"),
        (pickle.dumps({"entries": [{"state": 3}]}), "pg_config"), (b"[1, 2", "damaged"),
    ):  # fmt: skip
        other.write_bytes(content)
        with pytest.raises(SourceError, match=sentence):
            read_dumps([other])
    for content, sentence in (
        (pickle.dumps({"a": 1}), "device_traces"),
        (b"text", "not a pickle"),
        (pickle.dumps([1]), "device_traces"),
    ):
        other.write_bytes(content)
        with pytest.raises(SourceError, match=sentence):
            read_snapshot(other)
    events = [event("alloc", 0, 512)] * 1000
    other.write_bytes(pickle.dumps({"segments": [], "device_traces": [events] * 1000}))  # A million events in a few KB.
    with pytest.raises(SourceError, match="more events than fit into its size"):
        read_snapshot(other)


def test_ranks_come_from_names(tmp_path: Path) -> None:
    files = write_flight(tmp_path, {rank: flight([call(1)], GROUPS) for rank in (0, 11)})
    files[1].rename(tmp_path / "node7_rank11.json.gz")
    (tmp_path / "node7_rank11.json.gz").write_bytes(gzip.compress((tmp_path / "node7_rank11.json.gz").read_bytes()))
    assert [dump.rank for dump in read_dumps([files[0], tmp_path / "node7_rank11.json.gz"])] == [0, 11]
    for name, sentence in (("copy_rank_0", "both of rank 0"), ("mine.dump", "has no rank")):
        (tmp_path / name).write_bytes(files[0].read_bytes())
        with pytest.raises(UsageError, match=sentence):
            read_dumps([files[0], tmp_path / name])


def test_commands_answer_and_other_commands_name_them(tmp_path: Path) -> None:
    files = write_flight(
        tmp_path / "dumps", {0: flight([call(1, state="started")], GROUPS), 1: flight([], GROUPS)}, as_json=True
    )
    (tmp_path / "dumps" / "notes.txt").write_text("not a dump")
    sentence = "Rank 1 has not called all_reduce 1 of group group_0; rank 0 waits in it."
    assert sentence in run("collectives", str(tmp_path / "dumps")).output
    assert sentence in run("report", *map(str, files)).output
    assert f'"headline": "{sentence}"' in run("collectives", *map(str, files), "--format", "json").output
    refused = run("ingest", str(files[0]), "--data", str(tmp_path / "data"))
    assert "sawtooth collectives FILE" in str(refused.exception)
    snapshot = write_snapshot(tmp_path / "memory.pickle", [segment(0, [(1 << 20, "inactive")])], [event("alloc", 0, 512)])
    assert "The peak of GPU 0 is 512 B" in run("memory", str(snapshot)).output.replace("\xa0", " ")
