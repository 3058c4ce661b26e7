"""Tests of ``sawtooth report`` on damaged and unusual files.

It exits with 0 and diagnostics, or with 2 and one sentence. Repaired files give the numbers of the original.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from sawtooth.analysis.derive.operators import depth_of, nearest, subtree_sums
from sawtooth.app import cli
from tests.support import bad_traces as bad
from tests.support import sound_trace
from tests.support.paths import SAMPLES

NUMBERS = ("steps", "window_ns", "metrics", "ledger", "phases", "kernel_categories", "findings", "devices")
CUT_QUICK = {(0.02, True), (0.5, False), (0.99, True)}  # (share that is left, gzip)
SKIPPED = [case for case in bad.ODD if case.wanted == "skip"]
BESIDE_THE_EVENTS = {"odd ranks", "odd properties", "deep metadata behind", "relative zero base and Unix times"}


class Answer:
    """The result of ``sawtooth report FILE --format json``."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def report(self) -> dict[str, Any]:
        def refuse(text: str) -> None:
            raise AssertionError(f"{text} in a report")

        return dict(json.loads(self.out, parse_constant=refuse))

    @property
    def notes(self) -> dict[str, int]:
        return {d["key"]: d["count"] for d in self.report["diagnostics"]}

    @property
    def numbers(self) -> dict[str, Any]:
        values = {
            key: reading["value"] for key, reading in self.report["metrics"].items()
        }  # trust may differ: the file was mended
        return {**{key: self.report[key] for key in NUMBERS}, "metrics": values}


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    def asked(*given: str) -> Answer:
        monkeypatch.setenv("SAWTOOTH_DATA", str(tmp_path / "data"))
        monkeypatch.setattr(sys, "argv", ["sawtooth", "report", *given, "--format", "json"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return Answer(int(end.value.code or 0), printed.out, printed.err)

    return asked


@pytest.fixture
def report(ask, tmp_path):
    def asked(content: bytes, name: str = "trace.json") -> Answer:
        (tmp_path / name).write_bytes(content)
        return ask(str(tmp_path / name))

    return asked


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the numbers of the intact trace."""
    return {}


def sound_numbers(original, report):
    if not original:
        original.update(report(sound_trace.GOOD).numbers)
    return original


@pytest.mark.sweep(24)
@pytest.mark.parametrize("case", bad.REFUSED, ids=lambda case: case.name)
def test_bad_files_are_refused_with_exit_code_2_and_one_sentence(report, tmp_path, case):
    answer = report(case.content)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("sawtooth: ") and answer.err.count("\n") == 1 and case.says in answer.err
    assert "Traceback" not in answer.err and str(tmp_path) not in answer.err


def one_of_each() -> Iterator[Any]:
    """Yield the first case of each kind of repair, and all that are reported beside the events.

    The other cases are marked slow: ``tests/ingest/test_bad.py`` checks that their tables equal the original's, and a
    report's numbers come from those.
    """
    seen = set()
    for case in (*bad.REPAIRED, *SKIPPED):
        quick = case.note not in seen or case.name in BESIDE_THE_EVENTS
        seen.add(case.note)
        yield pytest.param(case, id=case.name, marks=() if quick else pytest.mark.slow)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("case", list(one_of_each()))
def test_repaired_files_and_odd_events_leave_the_numbers_of_the_original(report, original, case):
    wanted = sound_numbers(original, report)
    answer = report(case.content)
    compared = [key for key in NUMBERS if case in bad.REPAIRED or key in ("steps", "window_ns", "ledger", "kernel_categories")]
    assert answer.code == 0 and {key: answer.numbers[key] for key in compared} == {key: wanted[key] for key in compared}
    assert case.note is None or answer.notes[case.note] >= 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("share", "packed"),
    [
        pytest.param(share, packed, marks=() if (share, packed) in CUT_QUICK else pytest.mark.slow, id=f"{kind}-{share}")
        for kind, packed in (("gzip", True), ("plain", False))
        for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    ],
)
def test_a_truncated_recording_is_read_and_reported_as_truncated(report, share, packed):
    content = (SAMPLES / "gpt" / "trace.json.gz").read_bytes()
    content = content if packed else gzip.decompress(content)
    answer = report(content[: int(len(content) * share)])
    assert answer.code == 0
    assert {"truncated", "gzip_truncated"} & answer.notes.keys()
    assert_sound(answer.report)


def assert_sound(found: dict[str, Any]) -> None:
    """Check what holds for every report.

    Parts sum to the window, and every figure is finite or says why it is missing.
    """
    if found["ledger"]:
        assert sum(row["ns"] for row in found["ledger"] if row["device"] == found["ledger"][0]["device"]) == found["window_ns"]
    for key, reading in found["metrics"].items():
        value = reading["value"]
        assert (value is None) == bool(reading["why_missing"]), key
        assert value is None or math.isfinite(value), key
    for value in numbers_in(found):
        assert math.isfinite(value)


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for part in value.values():
            yield from numbers_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from numbers_in(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def changed(**change: Any) -> bytes:
    """Return the intact trace with every event changed.

    ``cat=function`` changes the events of a category, ``each`` all events.
    """
    events = []
    for number, event in enumerate(sound_trace.sound_events(6)):
        for kind, how in change.items():
            if isinstance(event, dict) and (kind == "each" or event.get("cat") == kind):
                event = how(number, dict(event, args=dict(event.get("args", {}))))
        events += event if isinstance(event, list) else [event] if event else []
    return sound_trace.text(sound_trace.sound(events))


def argued(**arguments: Any):
    return lambda _, event: {**event, "args": {**event["args"], **arguments}}


def named(names: list[str]):
    turn = cycle(names)
    return lambda _, event: {**event, "name": next(turn)}


def without(*keys: str):
    return lambda _, event: {**event, "args": {k: v for k, v in event["args"].items() if k not in keys}}


def shifted(by: float):
    return lambda number, event: {**event, "ts": event["ts"] + by * number} if event["ph"] == "X" else event


KERNEL = sound_trace.event("kernel", "k", 190.0, 3000.0, 0, 9, correlation=900, device=0, stream=9)
NAMES = ["void k<1>()", "", " ", "a" * 5000, "名前", "\u202e", "k" + chr(0), "%s%n", "'; DROP TABLE names; --", "=1+1", "nan"]
ODD_DOCUMENTS: dict[str, bytes] = {
    "57 host only": changed(kernel=lambda *_: None, gpu_memcpy=lambda *_: None),
    "58 GPU only": changed(cpu_op=lambda *_: None, cuda_runtime=lambda *_: None, user_annotation=lambda *_: None, python_function=lambda *_: None),
    "59 no steps": changed(user_annotation=lambda *_: None),
    "60 one step": sound_trace.text(sound_trace.sound(sound_trace.sound_events(1))),
    "60 two steps": sound_trace.text(sound_trace.sound(sound_trace.sound_events(2))),
    "60 one kernel": sound_trace.text(sound_trace.sound([KERNEL])),
    "60 one operator": sound_trace.text(sound_trace.sound([sound_trace.event()])),
    "62 kernels of one stream overlap": changed(kernel=lambda n, e: [e, {**e, "ts": e["ts"] + 5, "dur": 60.0}]),
    "62 the same kernel at the same time on two streams": changed(kernel=lambda n, e: [e, {**e, "tid": 8, "args": {**e["args"], "stream": 8}}]),
    "65 all events start together": changed(each=lambda n, e: {**e, "ts": 500.0}),
    "65 last event first": sound_trace.text(sound_trace.sound(sound_trace.sound_events(6)[::-1])),
    "66 steps overlap": changed(user_annotation=lambda n, e: {**e, "dur": 1500.0}),
    "66 steps inside steps": changed(user_annotation=lambda n, e: [e, {**e, "name": "ProfilerStep#99", "ts": e["ts"] + 100, "dur": 100.0}]),
    "66 steps of no length": changed(user_annotation=lambda n, e: {**e, "dur": 0}),
    "66 one number for all steps": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep#1"}),
    "66 a step number of many digits": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep#" + "9" * 60}),
    "66 steps without a number": changed(user_annotation=lambda n, e: {**e, "name": "ProfilerStep"}),
    "66 steps run backwards": changed(user_annotation=lambda n, e: {**e, "name": f"ProfilerStep#{100 - n}"}),
    "67 no correlation": changed(kernel=without("correlation"), cuda_runtime=without("correlation"), gpu_memcpy=without("correlation")),
    "67 one correlation for all": changed(kernel=argued(correlation=7), cuda_runtime=argued(correlation=7)),
    "67 negative correlation": changed(kernel=argued(correlation=-5), cuda_runtime=argued(correlation=-5)),
    "67 correlation 0": changed(kernel=argued(correlation=0), cuda_runtime=argued(correlation=0)),
    "68 negative threads": changed(each=lambda n, e: {**e, "pid": -1, "tid": -(n % 3)}),
    "68 huge threads": changed(each=lambda n, e: {**e, "tid": 2**62 + n % 3}),
    "69 sixteen GPUs": changed(kernel=lambda n, e: [{**e, "pid": d, "args": {**e["args"], "device": d}} for d in range(16)]),
    "69 device -1": changed(kernel=argued(device=-1), gpu_memcpy=argued(device=-1)),
    "69 a MIG name for a device": changed(kernel=argued(device="MIG-1c2d"), gpu_memcpy=argued(device="MIG-1c2d")),
    "70 a rank beyond the world": sound_trace.text(sound_trace.sound(distributedInfo={"backend": "nccl", "rank": 9, "world_size": 2})),
    "70 distributedInfo of odd types": sound_trace.text(sound_trace.sound(distributedInfo=["x"], deviceProperties={"a": 1})),
    "70 a rank of odd type": sound_trace.text(sound_trace.sound(distributedInfo={"rank": "one", "world_size": -1, "backend": None, "pg_config": 5})),
    "71 schemaVersion 99": sound_trace.text(sound_trace.sound(schemaVersion=99)),
    "71 schemaVersion text": sound_trace.text(sound_trace.sound(schemaVersion="new")),
    "71 a list of events": sound_trace.text(sound_trace.sound_events(6)),
    "71 AMD": changed(cuda_runtime=lambda n, e: {**e, "cat": "hip_runtime", "name": "hipLaunchKernel"}),
    "71 XPU": changed(cuda_runtime=lambda n, e: {**e, "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch"}),
    "71 capitals of 2020": changed(each=lambda n, e: {**e, "cat": {"kernel": "Kernel", "cpu_op": "Operator", "cuda_runtime": "Runtime"}.get(e.get("cat"), e.get("cat"))}),
    "72 no base": sound_trace.text({k: v for k, v in sound_trace.sound(sound_trace.sound_events(6)).items() if k != "baseTimeNanoseconds"}),
    "72 a base of odd type": sound_trace.text(sound_trace.sound(baseTimeNanoseconds="soon")),
    "72 a negative base": sound_trace.text(sound_trace.sound(baseTimeNanoseconds=-(10**18))),
    "72 a base beyond 64 bits": sound_trace.text(sound_trace.sound(baseTimeNanoseconds=10**30)),
    "72 the clock steps back an hour": changed(each=lambda n, e: {**e, "ts": e["ts"] - 3.6e9} if n > 30 else e),
    "72 times below zero": changed(each=lambda n, e: {**e, "ts": e["ts"] - 1e6}),
    "30 an event of 5 MB": sound_trace.with_event(sound_trace.kernel(args=b'{"correlation": 900, "x": "' + b"a" * (5 << 20) + b'"}')),
    "26 ten thousand equal events": gzip.compress(changed(cpu_op=lambda n, e: [e] * 1000)),
    "38 kernels of no length": changed(kernel=lambda n, e: {**e, "dur": 0}),
    "37 kernels of a week": changed(kernel=lambda n, e: {**e, "dur": 6.9 * 86_400e6}),
    "shapes of odd types": changed(cpu_op=argued(**{"Input Dims": [[-1, 0], ["x"], None, [[2**40]], 5], "Input type": [1, None], "Concrete Inputs": {}})),
    "shapes beyond 64 bits": changed(cpu_op=argued(**{"Input Dims": [[2**62, 2**62], [2**62, 2**62]], "Input type": ["float", "float"]})),
    "kernels with odd sizes": changed(kernel=argued(grid=[-1, 0, 2**40], block=[0, 0, 0], **{"registers per thread": -5, "blocks per SM": "NaN", "est. achieved occupancy %": 1e9})),
    "copies of negative size": changed(gpu_memcpy=argued(bytes=-1, **{"memory bandwidth (GB/s)": "x"})),
    "operators inside out": changed(cpu_op=shifted(37.0)),
    "a launch after its kernel": changed(cuda_runtime=lambda n, e: {**e, "ts": e["ts"] + 400}),
    **{f"48 kernels called {part[0][:12]!r} and otherwise": changed(kernel=named(part)) for part in (NAMES[:6], NAMES[6:])},
}  # fmt: skip


READ = ("59", "60", "62", "65", "67", "68", "71", "48", "38")  # only odd: these must be read


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("name", "content"), ODD_DOCUMENTS.items(), ids=ODD_DOCUMENTS.keys())
def test_odd_traces_have_reports_whose_parts_sum(report, name, content):
    answer = report(content)
    assert "Traceback" not in answer.err
    if answer.code == 0 or name.startswith(READ):
        assert_sound(answer.report)
    else:
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1) and answer.err.startswith("sawtooth: ")


def test_walking_a_chain_of_operators_takes_linear_time():
    """A damaged trace may nest every operator in the one before.

    Climbing from each of them took minutes.
    """
    count = 200_000
    parent = np.arange(count) - 1
    started = time.process_time()
    assert depth_of(parent).tolist() == list(range(count))
    assert subtree_sums(np.ones(count, np.int64), parent).tolist() == list(range(count, 0, -1))
    assert set(nearest(np.arange(count) == 7, parent, np.arange(7, count)).tolist()) == {7}
    assert nearest(np.arange(count) == 7, parent, np.array([6, -1])).tolist() == [-1, -1]
    assert time.process_time() - started < 10


@pytest.mark.parametrize("given", ["x" * 300, "no/such/file.json", "gone.json\n"])
def test_missing_file_is_reported(ask, given):
    answer = ask(given)
    assert (answer.code, answer.out) == (2, "") and answer.err.startswith("sawtooth: ") and answer.err.count("\n") == 1


def test_data_folder_that_cannot_be_created_is_reported(ask, tmp_path):
    (tmp_path / "taken").write_text("a file where a folder belongs")
    answer = ask("0" * 16, "--data", str(tmp_path / "taken"))
    assert answer.code == 2 and answer.err.startswith("sawtooth: ") and answer.err.count("\n") == 1


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["../../x.json", "x" * 200, "a\nb.json", "<img src=x>.json", "😀.json", ".hidden", "noending", "trace.json.gz", "a.csv"])  # fmt: skip
def test_file_name_does_not_decide_the_format(report, original, name):
    wanted = sound_numbers(original, report)
    answer = report(sound_trace.GOOD, name.replace("/", "_"))
    assert answer.code == 0 and answer.numbers == wanted
    assert "\n" not in answer.report["run"]["recordings"][0]["source_name"]


def test_the_same_bytes_are_one_run_for_every_compression(report):
    ids = {
        report(content, name).report["run"]["id"]
        for content, name in (
            (sound_trace.GOOD, "a.json"),
            (sound_trace.PACKED, "b.gz"),
            (sound_trace.members(sound_trace.GOOD, 3), "c"),
        )
    }
    assert len(ids) == 1
