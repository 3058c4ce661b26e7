"""Tests of the slowest stage of loading a batch, and of the user's function that takes the time.

Traces are made by hand, or have the loader's own times.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sawtooth.analysis.findings.loader_limits import (
    BUCKETED,
    SENT_SMALL,
    VECTORISED,
    cheaper_batch_change,
    limiting_stage,
    loader_limit,
)
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.ingest.manifest import UserFacts
from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace

STEP_US, STEPS = 20_000, 6
RULE = "data-loader-starves-gpu"

TIMED = UserFacts(
    loader_workers=4, loader_cores=16, loader_batch=32, loader_sample_ms=0.002, loader_sample_cpu_ms=0.00186,
    loader_sample_error_ms=0, loader_collate_ms=5.7, loader_collate_code="train.py(9): pad", loader_sample_code="train.py(3): Texts.__getitem__",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "stage", "title", "advice", "change"),
    [
        ({}, "collate", ": collating takes 5.7 ms of the 5.76 ms for a batch (train.py:9 in pad)", "Vectorise the collate", VECTORISED),
        ({"loader_workers": 0}, "collate", ": collating takes 5.7 ms", "Vectorise the collate", VECTORISED),
        ({"loader_padding": 0.4}, "collate", ": collating takes", "40 % of a batch is padding", BUCKETED),
        ({"loader_sample_ms": 2, "loader_sample_cpu_ms": 1.9}, "sample", "computes for 95 % of its time (train.py:3 in Texts", "", None),
        ({"loader_sample_ms": 2, "loader_sample_cpu_ms": 0.1}, "sample", "waits for 95 % of its time", "WebDataset", None),
        ({"loader_pin_ms": 9}, "pinning", ": one thread pins the batches of all", "more workers do not help", SENT_SMALL),
        ({"loader_pin_ms": 9, "loader_padding": 0.4}, "pinning", ": one thread", "groups samples of similar length", SENT_SMALL),
        ({"loader_pin_ms": 1}, "collate", ": collating", "Vectorise", VECTORISED),  # Four workers make a batch in 1.44 ms.
        ({"loader_pin_ms": 9, "loader_workers": 0}, "pinning", ": pinning a batch takes 9 ms", "pin_memory=False", SENT_SMALL),
        ({"loader_pin_ms": 3, "loader_workers": 0}, "collate", "of the 8.76 ms for a batch", "Vectorise", VECTORISED),
    ],
)  # fmt: skip
def test_the_slowest_stage_of_loading_has_its_own_advice(changes, stage, title, advice, change):
    facts = msgspec.structs.replace(TIMED, **changes)
    assert limiting_stage(facts) == stage
    answer, to_do = loader_limit(facts)
    assert title in answer and advice in to_do.sentence
    advises_workers = "more workers" in to_do.sentence.lower().replace("more workers do not help", "")
    assert advises_workers is ((stage != "pinning" and facts.loader_workers != 0) or stage == "sample")
    if change is not None:
        assert cheaper_batch_change(facts) == change


def waiting_loop(pins: tuple[int, int], loop_pins: bool = False, batch_bytes: int = 0) -> ChromeTrace:
    """Add steps of 20 ms: 12 ms waiting for workers, then 8 ms of a kernel.

    A thread (or the loop's own) is in cudaHostAlloc for ``pins`` µs of the wait.
    """
    trace = ChromeTrace()
    for at in trace.each_step(STEPS, STEP_US, first=0):
        trace.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, at + 12_000)
        trace.op("aten::mm", at + 12_010, at + 12_060, [[1024, 1024]] * 2, ["float"] * 2)
        trace.launch((at + 12_020, at + 12_030), (at + 12_040, at + 19_990), "gemm")
        if batch_bytes:
            trace.launch(
                (at + 12_002, at + 12_004),
                (at + 12_005, at + 12_030),
                "Memcpy HtoD (Pinned -> Device)",
                "gpu_memcpy",
                bytes=batch_bytes,
            )
        trace.thread = 1 if loop_pins else 77
        trace.host("cuda_runtime", "cudaHostAlloc", at + pins[0], at + pins[1])
        trace.thread = 1
    return trace


def of_rule(result: RunResult, rule: str) -> Finding:
    return next(finding for finding in result.findings if finding.rule == rule)


@pytest.mark.parametrize(
    ("pins", "loop_pins", "limits"),
    [((500, 11_500), False, True), ((500, 3_000), False, False), ((500, 11_500), True, False)],
)
def test_a_plain_trace_shows_the_pinning_thread(tmp_path: Path, pins: tuple[int, int], loop_pins: bool, limits: bool) -> None:
    """Driver calls on another thread are pinning.

    If they take little of the wait, or if the loop makes them itself, they are not the limit.
    """
    finding = of_rule(analysed(tmp_path, waiting_loop(pins, loop_pins)), RULE)
    assert ("one thread pins the batches of all workers, during 11 ms of each 12 ms wait" in finding.title) is limits
    assert ("more workers do not help" in finding.action.sentence) is limits
    assert (finding.predicted_step_ms is None) is limits
    assert ("num_workers" in finding.changes[0].after) is not limits


@pytest.mark.parametrize(("batch_bytes", "advised"), [(2_000_000, "Set pin_memory=False"), (40_000_000, "Send fewer bytes")])
def test_slow_pinning_of_small_batches_gets_no_advice_on_bytes(tmp_path: Path, batch_bytes: int, advised: str) -> None:
    # One thread copies 2.9 GB/s: 2 MB take 0.7 of the 11 ms, and 40 MB all of them.
    finding = of_rule(analysed(tmp_path, waiting_loop((500, 11_500), batch_bytes=batch_bytes)), RULE)
    assert finding.fix.startswith(advised)


def test_the_heaviest_function_is_named_even_if_it_was_not_open_in_the_middle(tmp_path: Path) -> None:
    # Each step has 9 ms of Python. `score` runs three times for 2 ms around 2 ms of `log`, which contains the middle
    # of the interval.
    trace = ChromeTrace(with_stack=1)
    trace.host("python_function", "train.py(40): main", 0, STEP_US * STEPS, **{"Python id": 1})
    for k in range(STEPS):
        at = k * STEP_US
        trace.step(k, at, at + STEP_US)
        for number, (name, begin, end) in enumerate(
            [("m.py(3): score", 1000, 3000), ("m.py(3): score", 3000, 5000), ("m.py(9): log", 5000, 7000), ("m.py(3): score", 7000, 9000)]
        ):  # fmt: skip
            trace.host(
                "python_function", name, at + begin, at + end, **{"Python id": 10 * k + 10 + number, "Python parent id": 1}
            )
        trace.op("aten::mm", at + 10_010, at + 10_060, [[1024, 1024]] * 2, ["float"] * 2)
        trace.launch((at + 10_020, at + 10_030), (at + 10_040, at + 19_990), "gemm")
    finding = of_rule(analysed(tmp_path, trace), "python-between-operators")
    assert finding.title.endswith("most at m.py:3 in score")
