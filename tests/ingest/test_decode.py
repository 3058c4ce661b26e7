"""Tests of hostile numbers and lists in files, which are read correctly or as missing, without delay."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.decode import MAX_TIME_NS, NULL, decimal_ns, floats, integers, small_integers, whole_microseconds
from sawtooth.ingest.schema import DataFolder
from tests.support import sound_trace


@pytest.mark.parametrize("text", ["1e9999999", "1e999999999", "-1e999999999", "9" * 5_000])
def test_a_number_with_millions_of_digits_is_not_printed(text: str) -> None:
    """int() of the first number takes minutes, and int() of the second takes all memory."""
    began = time.process_time()
    assert integers([text, 7]).tolist() == [NULL, 7]
    assert np.isnan(floats([text])[0])
    assert int(decimal_ns([text.encode(), b"1.5"])[0]) == (-MAX_TIME_NS if text.startswith("-") else MAX_TIME_NS)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", [b"Infinity", b"-Infinity", b"NaN", b"sNaN", b'"Infinity"'])
def test_a_time_must_be_a_finite_number(text: bytes) -> None:
    assert decimal_ns([text, b"1.5"]).tolist() == [NULL, 1_500]
    assert np.isnan(floats([text.strip(b'"').decode()])[0])


def test_values_beyond_32_bits_are_not_recorded() -> None:
    assert small_integers([(1 << 31) - 1, 1 << 31, -(1 << 31), "x", None]).tolist() == [(1 << 31) - 1, NULL, NULL, NULL, NULL]


@pytest.mark.parametrize("values", [[[1, 2], [3, 4]], [[1]], [[], []], [{"a": 1}, 2], [None, 2]])
def test_invalid_numbers_do_not_affect_their_neighbours(values: list[Any]) -> None:
    wanted = [value if isinstance(value, int) else None for value in values]
    assert [None if v == NULL else v for v in integers(values).tolist()] == wanted
    assert [None if np.isnan(v) else v for v in floats(values).tolist()] == wanted


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"Input type": 5}, {}),
        ({"Input Dims": {"a": [1]}, "Input type": "float"}, {}),
        ({"Concrete Inputs": True, "Input Strides": 1.5}, {}),
        ({"correlation": "1e9999999"}, {}),
        ({}, {"deviceProperties": [{"id": [0], "name": ["a"], "numSms": {"a": 1}}]}),
        ({}, {"distributedInfo": {"rank": [1], "world_size": "1e9999999"}}),
        *(({}, {"baseTimeNanoseconds": base}) for base in (2**63 - 1, 2**62, -(2**63), 2**64, "9" * 40, 1e300)),
    ],
)
def test_a_trace_whose_values_have_other_types_is_read_to_the_end(
    tmp_path: Path, arguments: dict[str, Any], about: dict[str, Any]
) -> None:
    events = sound_trace.sound_events(4)
    for event in events:
        if event.get("cat") in ("cpu_op", "kernel"):
            event["args"] |= arguments
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(sound_trace.sound(events, **about)))
    folder = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    library = Library(folder)
    assert result_of(run, library).metrics
    library.close()


@pytest.mark.parametrize("position", [0, 63, 64, 499])
def test_a_time_with_a_fraction_is_found_at_every_position(position: int) -> None:
    times = np.arange(500) * 1000 - 7000
    assert whole_microseconds(times) and whole_microseconds(times[:0])
    times[position] += 1
    assert not whole_microseconds(times)
