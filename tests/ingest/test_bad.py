"""Tests of bad input, which is repaired and counted, or refused in one sentence."""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from tests.support import bad_traces as bad
from tests.support import sound_trace
from tests.support.recorded_tables import read


def ingest(folder, tmp_path, content):
    path = tmp_path / "given"
    path.write_bytes(content)
    return read(folder, ingest_file(path, folder))


def left_over(folder):
    return [p.name for place in (folder.recordings, folder.sources, folder.runs) for p in place.iterdir()]


@pytest.mark.parametrize("case", bad.REFUSED, ids=lambda c: c.name)
def test_bad_files_are_refused_with_one_sentence(tmp_path, folder, case):
    with pytest.raises(SourceError) as refusal:
        ingest(folder, tmp_path, case.content)
    sentence = str(refusal.value)
    assert refusal.value.code == case.wanted, sentence
    assert case.says in sentence and "Traceback" not in sentence and str(tmp_path) not in sentence and len(sentence) < 300
    assert left_over(folder) == []


@pytest.mark.sweep(9)
@pytest.mark.parametrize("case", bad.REPAIRED, ids=lambda c: c.name)
def test_repaired_files_give_the_numbers_of_the_original(tmp_path, folder, sound, case):
    tables, notes, truncated = ingest(folder, tmp_path, case.content)
    assert tables == {**sound, "threads": tables["threads"]}
    assert sorted(tables["threads"]) == sorted(sound["threads"])
    assert case.note is None or notes[case.note] >= 1
    assert truncated is (case.note in ("truncated", "gzip_truncated"))


@pytest.mark.sweep(15)
@pytest.mark.parametrize("case", bad.ODD, ids=lambda c: c.name)
def test_at_most_the_odd_event_is_lost(tmp_path, folder, sound, case):
    tables, notes, truncated = ingest(folder, tmp_path, case.content)
    assert not truncated
    assert case.note is None or notes[case.note] == 1
    odd = [row for row in tables["gpu_ops"] if row[4] == sound_trace.BASE + 500_500]  # start_ns of the inserted kernel.
    if case.wanted == "skip":
        assert odd == [] and tables["cpu_ops"] == sound["cpu_ops"] and tables["gpu_ops"] == sound["gpu_ops"]
    else:
        assert [(row[0], row[1], row[2] in (0, -1), row[5]) for row in odd] == [
            ("kernel", case.stored or "k", True, 0 if "duration 0" in case.name else 7250)
        ]
        assert tables["cpu_ops"] == sound["cpu_ops"] and tables["runtime_calls"] == sound["runtime_calls"]
        assert len(tables["gpu_ops"]) == len(sound["gpu_ops"]) + 1


@pytest.mark.parametrize("limits", [Limits(distinct_names=5), Limits(names_length=40)], ids=["distinct", "length"])
def test_too_many_different_names_are_refused(tmp_path, folder, limits):
    path = tmp_path / "t.json"
    path.write_bytes(sound_trace.GOOD)
    with pytest.raises(SourceError) as refusal:
        ingest_file(path, folder, limits=limits)
    assert refusal.value.code == "E-LIMIT" and left_over(folder) == []


@pytest.mark.parametrize("behind", [b", " + b'"x": "' + b"a" * 9000 + b'"}', b"}" + b" " * 9000], ids=["metadata", "blanks"])
def test_long_data_after_the_events_is_accepted(behind):
    complete, cut = (
        Document(iter([sound_trace.GOOD[:-1] + behind]), limits, size)
        for limits, size in ((Limits(), 1 << 20), (Limits(event_bytes=2000), 1000))
    )
    assert sum(map(len, cut.events())) == sum(map(len, complete.events())) > 0
    assert cut.metadata == complete.metadata and not cut.truncated


def test_a_file_with_repeated_event_keys_is_refused_early():
    began = time.process_time()
    for text, code in (
        (b'{"a":' + b'{"traceEvents":' * 20_000, "E-DEPTH"),
        (b'{"a": [' + b'{"traceEvents": 0], ' * 20_000, "E-JSON"),
    ):
        with pytest.raises(SourceError) as refusal:
            list(Document(iter([text]), Limits()).events())
        assert refusal.value.code == code
    assert time.process_time() - began < 3.0
    inner = b'{"a": {"b": {"traceEvents": 1}}, "c": [{"traceEvents": []}], '
    document = Document(iter([inner + sound_trace.GOOD.lstrip()[1:]]), Limits())
    assert sum(map(len, document.events())) > 0


def test_an_event_without_an_end_is_refused_with_its_position():
    document = Document(iter([sound_trace.GOOD[:-2] + b', {"name": "' + b"a" * 9000]), Limits(event_bytes=2000), 1000)
    with pytest.raises(SourceError, match=rf"event at byte {len(sound_trace.GOOD):,} is longer") as refusal:
        list(document.events())
    assert refusal.value.code == "E-TOKEN" and refusal.value.offset == len(sound_trace.GOOD)


@pytest.mark.parametrize("what", ["folder", "pipe", "device"])
def test_a_path_that_is_not_a_file_is_refused_at_once(tmp_path, folder, what):
    path = {"device": Path("/dev/zero")}.get(what, tmp_path / what)
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises(SourceError, match="not a file") as refusal:
        ingest_into_runs(folder, [(path, path.name)])
    assert refusal.value.code == "E-TYPE" and left_over(folder) == []


def test_binary_data_is_refused_without_showing_it(tmp_path, folder):
    path = tmp_path / "rnd.json.gz"
    path.write_bytes(bytes(range(250, -1, -1)) * 12)
    with pytest.raises(SourceError, match="This is binary data, but neither") as refusal:
        ingest_into_runs(folder, [(path, path.name)])
    assert refusal.value.code == "E-TYPE"


def test_duplicates_of_two_profilers_are_kept_once(tmp_path, folder, sound):
    """Every GPU operation is written twice. The six copies are counted."""
    events = [
        again for e in sound_trace.sound_events() for again in ([e, e] if e.get("cat") in ("kernel", "gpu_memcpy") else [e])
    ]
    tables, notes, _ = ingest(folder, tmp_path, sound_trace.text(sound_trace.sound(events)))
    assert tables == sound and notes["duplicate"] == 6


def test_separate_begin_and_end_events_become_operators(tmp_path, folder, sound):
    """The events may have any order in the file. An end event without a begin event is counted."""
    events = []
    for e in sound_trace.sound_events():
        if e.get("cat") != "cpu_op":
            events.append(e)
            continue
        begin = {k: v for k, v in e.items() if k not in ("dur", "args")} | {"ph": "B"}
        events += [{"ph": "E", "pid": 1, "tid": 2, "ts": e["ts"] + e["dur"]}, begin]
    events.append({"ph": "E", "pid": 1, "tid": 2, "ts": 5000.0})
    tables, notes, _ = ingest(folder, tmp_path, sound_trace.text(sound_trace.sound(events)))
    assert [row[:6] for row in tables["cpu_ops"]] == [row[:6] for row in sound["cpu_ops"]]
    assert notes["edge_unmatched"] == 1


def test_events_that_torch_lost_are_left_out(tmp_path, folder, sound):
    # torch 2.12 writes start 0 and duration 0 for lost events. Real events are years after the trace's base time.
    late = [{**e, "ts": e["ts"] + 4e12} if e["ph"] != "M" else e for e in sound_trace.sound_events()]
    lost = sound_trace.event("kernel", "lost", 0.0, 0.0, 0, 7, correlation=1, device=0, stream=7)
    tables, notes, _ = ingest(folder, tmp_path, sound_trace.text(sound_trace.sound([*late, lost])))
    assert notes["time_zero"] == 1 and len(tables["gpu_ops"]) == len(sound["gpu_ops"])


@pytest.mark.parametrize(("kept", "note"), [(("cpu_op", "user_annotation"), "no_gpu"), (("kernel", "gpu_memcpy"), "no_host")])
def test_traces_with_only_host_or_gpu_events_are_noted(tmp_path, folder, kept, note):
    events = [e for e in sound_trace.sound_events() if e.get("cat") in kept]
    assert ingest(folder, tmp_path, sound_trace.text(sound_trace.sound(events)))[1][note] == 1


def test_other_files_of_pytorch_are_named(tmp_path: Path) -> None:
    for name, content, words in (
        (
            "nccl.json",
            b'{"version": "2.10", "entries": [], "pg_config": {}, "comm_lib_version": "2"}',
            "NCCL's flight recorder",
        ),
        ("snapshot.pickle", b"\x80\x04\x95\x10\x00\x00", "a Python pickle"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=words):
            ingest_file(tmp_path / name, DataFolder(tmp_path / "data").create())


def test_a_header_of_many_megabytes_is_read_once(tmp_path, folder, monkeypatch):
    def repair(text):
        raise AssertionError(f"{len(text):,} intact bytes were repaired")

    monkeypatch.setattr("sawtooth.ingest.trace.torch_json.text.envelope.repair", repair)
    path = tmp_path / "t.json"
    path.write_bytes(b'{"pad": "' + b"x" * (9 << 20) + b'", "small": 1, ' + sound_trace.GOOD[1:])
    ref = ingest_file(path, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        assert con.execute("SELECT metadata FROM recording").fetchall() == [('{"small":1}',)]
        assert con.execute("SELECT example FROM diagnostics WHERE key = 'metadata_large'").fetchall() == [("pad",)]


def test_a_broken_header_of_many_megabytes_is_refused(tmp_path, folder):
    path = tmp_path / "t.json"
    path.write_bytes(b'{"loss": NaN, "pad": "' + b"x" * (5 << 20) + b'", ' + sound_trace.GOOD[1:])
    with pytest.raises(SourceError):
        ingest_file(path, folder)
    assert left_over(folder) == []


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"\x1b[2Jjunk \xff\xd8" + b"q" * 99, "The file begins with '\\x1b[2Jjunk \\xff\\xd8" + "q" * 40 + "'…. It is"),
        (b'{"traceEvents": [\x1b[31m\xff\xff' + b"\xfe" * 99, "The first begins with '\\x1b[31m"),
        (b'{"\x7f\xe2\x80\xae": 1}', "a JSON object with the keys '\\x7f\\u202e', without"),
    ],
)
def test_content_of_a_junk_file_is_shown_short_and_escaped(tmp_path, folder, content, shown):
    path = tmp_path / "junk.json"
    path.write_bytes(content)
    with pytest.raises(SourceError) as refused:
        ingest_file(path, folder)
    sentence = str(refused.value)
    assert shown in sentence and sentence.isprintable() and "\N{REPLACEMENT CHARACTER}" not in sentence
    assert len(sentence) < 260
