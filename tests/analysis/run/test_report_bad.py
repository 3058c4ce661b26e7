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
from typing import Any

import numpy as np
import pytest

from sawtooth.analysis.derive.operators import depth_of, nearest_marked_operator, subtree_sums
from sawtooth.app import cli
from tests.support import bad_traces as bad
from tests.support import sound_trace
from tests.support.odd_documents import ODD_DOCUMENTS, READABLE_DOCUMENTS
from tests.support.paths import SAMPLES

NUMBERS = ("steps", "window_ns", "metrics", "ledger", "phases", "kernel_categories", "findings", "devices")
CUT_QUICK = {(0.02, True), (0.5, False), (0.99, True)}  # (share that is left, gzip)
SKIPPED = [case for case in bad.ODD if case.wanted == "skip"]
BESIDE_THE_EVENTS = {"odd ranks", "odd properties", "deep metadata behind", "relative zero base and Unix times"}


class Answer:
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
        # The trust of a repaired file may differ.
        values = {key: reading["value"] for key, reading in self.report["metrics"].items()}
        return {**{key: self.report[key] for key in NUMBERS}, "metrics": values}


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    def asked(*arguments: str) -> Answer:
        monkeypatch.setenv("SAWTOOTH_DATA", str(tmp_path / "data"))
        monkeypatch.setattr(sys, "argv", ["sawtooth", "report", *arguments, "--format", "json"])
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
        fast = case.note not in seen or case.name in BESIDE_THE_EVENTS
        seen.add(case.note)
        yield pytest.param(case, id=case.name, marks=() if fast else pytest.mark.slow)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("case", list(one_of_each()))
def test_repaired_files_and_odd_events_give_the_numbers_of_the_original(report, original, case):
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
    """Check the conditions that every report must meet.

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


@pytest.mark.sweep(8)
@pytest.mark.parametrize("content", READABLE_DOCUMENTS.values(), ids=READABLE_DOCUMENTS.keys())
def test_unusual_traces_have_reports_whose_parts_sum(report, content):
    answer = report(content)
    assert "Traceback" not in answer.err
    assert_sound(answer.report)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("content", ODD_DOCUMENTS.values(), ids=ODD_DOCUMENTS.keys())
def test_odd_traces_are_refused_or_have_reports_whose_parts_sum(report, content):
    answer = report(content)
    assert "Traceback" not in answer.err
    if answer.code == 0:
        assert_sound(answer.report)
    else:
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1) and answer.err.startswith("sawtooth: ")


def test_walking_a_chain_of_operators_takes_linear_time():
    """A damaged trace may nest every operator in the one before.

    Following the parents of each operator would take minutes.
    """
    count = 200_000
    parent = np.arange(count) - 1
    started = time.process_time()
    assert depth_of(parent).tolist() == list(range(count))
    assert subtree_sums(np.ones(count, np.int64), parent).tolist() == list(range(count, 0, -1))
    assert set(nearest_marked_operator(np.arange(count) == 7, parent, np.arange(7, count)).tolist()) == {7}
    assert nearest_marked_operator(np.arange(count) == 7, parent, np.array([6, -1])).tolist() == [-1, -1]
    assert time.process_time() - started < 10


@pytest.mark.parametrize("path", ["x" * 300, "no/such/file.json", "gone.json\n"])
def test_missing_file_is_reported(ask, path):
    answer = ask(path)
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
