"""Tests of waits by polling: a loop of queries is one wait for the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace

FLOAT = ["float", "float"]
WORK_ENDS_US = 618  # Time of the work's end in each step of 1,000 µs.
POLLED_FROM_US = 110


def step_idle_us(
    folder: Path, queries: Sequence[tuple[str, float, float]], *, operator: str = "", thread: int = 1
) -> dict[str, float]:
    """Return the idle time of a step by cause, in µs.

    In each step, the host makes the calls (name, start, end) after it has launched ten kernels of 58 µs until 105. The GPU works
    from 20 to 618.
    """
    return idle_us(with_calls(folder, queries, operator=operator, thread=thread))


def with_calls(folder: Path, queries: Sequence[tuple[str, float, float]], *, operator: str = "", thread: int = 1) -> RunResult:
    trace = ChromeTrace()
    for at in trace.each_step(6, 1000):
        for i in range(10):
            start = at + 5 + 10 * i
            trace.op("aten::add", start, start + 9, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 3, start + 7), (at + 20 + 60 * i, at + 20 + 60 * i + 58), ADDS)
        trace.thread = thread
        if operator:
            trace.op(operator, at + POLLED_FROM_US - 1, at + 700)
        for name, begin, end in queries:
            trace.host("cuda_runtime", name, at + begin, at + end)
        trace.thread = 1
    return analysed(folder, trace)


def idle_us(result: RunResult) -> dict[str, float]:
    assert result.lead is not None
    steps = len(result.lead.counted)
    return {row.cause: row.ns / 1e3 / steps for row in result.lead.ledger if row.owner == "idle" and row.cause}


def polls(every_us: float, name: str = "cudaEventQuery", until_us: float = WORK_ENDS_US + 4) -> list[tuple[str, float, float]]:
    """Return polls of 1.5 µs until one begins after the GPU's work."""
    found, at = [], float(POLLED_FROM_US)
    while at < until_us:
        found.append((name, at, at + 1.5))
        at += every_us
    return found


@pytest.mark.parametrize("name", ["cudaEventQuery", "cudaStreamQuery", "hipEventQuery"])
def test_a_polling_loop_waits_like_a_synchronization(tmp_path: Path, name: str) -> None:
    polled = with_calls(tmp_path / "polled", polls(4, name))
    waited = with_calls(tmp_path / "waited", [("cudaEventSynchronize", POLLED_FROM_US, WORK_ENDS_US + 4)])
    assert idle_us(polled) == pytest.approx(idle_us(waited), abs=2)
    assert idle_us(polled)["host_sync"] > 300
    finding = polled.findings[0]
    assert finding.rule == "host-waits-for-gpu" and finding.fix.startswith("Poll events of an earlier step")
    assert finding.predicted_step_ms == pytest.approx(waited.findings[0].predicted_step_ms or 0, rel=0.01)
    assert "launch-bound" not in {item.rule for item in polled.findings}


def test_a_loop_that_sleeps_between_its_polls_waits_too(tmp_path: Path) -> None:
    # The last poll begins up to 100 µs after the GPU's work ends. The host's wait explains the idle time until then.
    assert step_idle_us(tmp_path, polls(100, until_us=WORK_ENDS_US + 100))["host_sync"] > 300


@pytest.mark.parametrize(
    ("queries", "operator", "thread"),
    [
        (polls(4), "aten::empty", 1),  # The allocator's queries.
        (polls(4), "", 9),  # NCCL's watchdog
        (polls(4, until_us=350), "", 1),  # It ends while a kernel runs, from 320 to 378.
        (polls(4)[:2], "", 1),
    ],
    ids=["allocator", "another-thread", "ends-early", "two-polls"],
)
def test_other_queries_are_not_waits(
    tmp_path: Path, queries: list[tuple[str, float, float]], operator: str, thread: int
) -> None:
    assert "host_sync" not in step_idle_us(tmp_path, queries, operator=operator, thread=thread)
