"""Tests of kinds of incomplete data on six recordings.

No trusted number of their reports is wrong by more than a tenth.
"""

from __future__ import annotations

import gzip
from functools import lru_cache

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.app.words.headline import headline
from tests.incomplete.claims import analysed, claims, numbers_of, trusted_and_wrong
from tests.incomplete.damage import DAMAGES, damaged
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import ROOT

CASES = {
    "mlp_graph": (
        "lose 30.0% of the GPU's records", "lose the GPU's records from 30% to 70%", "lose every 3. operation", "lose all GPU records",
        "remove graph ids", "lose the kernels of name 1", "lose the kernels of name 4",
    ),
    "mm_fp8": (
        "lose 50.0% of the GPU's records", "lose the kernels of name 1", "remove all shapes", "cut to 97%",
        "give every kernel one name",
    ),
    "gpt_compiled": (
        "lose 10.0% of the GPU's records", "lose the GPU's records from 60% to 200%", "lose the kernels of name 2", "remove External ids",
        "make 2% of kernels 5000 µs longer",
    ),
    "eval_with_grad": (
        "lose 0.5% of the GPU's records", "lose the GPU's records from 0% to 50%", "lose every 7. operation", "lose all copies",
        "record the GPU twice",
    ),
    "mlp_4096": (
        "lose 80.0% of the GPU's records", "lose the last of every part", "remove half of the shapes", "cut to 70%",
        "remove all dtypes",
    ),
    "boolean_mask": (
        "lose 2.0% of the GPU's records", "lose the GPU's records from 20% to 50%", "lose half of the copies", "lose half of the steps' marks",
        "cut to 50%",
    ),
}  # fmt: skip


@lru_cache
def text_of(recording: str) -> bytes:
    return gzip.decompress((ROOT / "tests" / "recordings" / recording / "trace.json.gz").read_bytes())


@lru_cache
def intact(recording: str) -> RunResult:
    result = numbers_of([("t.json", text_of(recording))])
    assert result is not None and not result.failed
    return result


def test_at_least_thirty_kinds_of_damage_are_tried() -> None:
    names = [name for item in CASES.values() for name in item]
    assert len(names) == 32 and all(name in DAMAGES or name.startswith("cut to") for name in names)


@pytest.mark.parametrize(("recording", "damage"), [(recording, name) for recording, names in CASES.items() for name in names])
def test_no_number_is_trusted_and_wrong(recording: str, damage: str) -> None:
    result = numbers_of([("t.json", damaged(text_of(recording), damage, seed=1))])
    assert list(trusted_and_wrong(intact(recording), result)) == []


@pytest.mark.parametrize(("end", "packed"), [(-150, False), (-90, True)])
def test_a_file_that_ends_within_its_events_has_no_other_headline(end, packed) -> None:
    """The list of events is not closed then.

    A file that lacks only its closing bracket has all events.
    """
    text = matmul_loop(6).json()
    text = gzip.compress(text)[:end] if packed else text[:end]
    result = analysed([("t.json.gz" if packed else "t.json", text)])
    assert result is not None and headline(result) == "The trace file is cut off. Copy it again."
    assert {reading.trust for _, reading in claims(result).values() if reading.value is not None} <= {"caution", "unusable"}
