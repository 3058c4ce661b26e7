"""Tests that the headline and the first finding name the same cause and time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.findings.rules.convolution_search import RULE
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.analysis.run.verdict import explains, judge
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words.run import first_line
from tests.support.actions import act
from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import NAMES, result_of
from tests.support.run_results import run_of

# By recording: the part of its first line after the busy share.
SAID = {
    "conv_searches": "It waits for cuDNN's search for convolution algorithms.",
    "checkpointing_io": "It waits for checkpoints in the loop.",
    "collected_garbage": "It waits for Python's garbage collection.",
    "loader_restarts": "It waits for loader workers that restart.",
    "boolean_mask": "goes to boolean masks, whose size the host waits for.",
    "mask_from_cpu": "goes to tensors made on the CPU.",  # The finding explains the step of the telemetry, so "do not show what it waits for" is absent.
    "checkpoint_unseen": "do not show what it waits for.",
    "conv_searches_off": "It waits for the host to launch kernels.",
    "slow_every_fourth": "25 % (3.00 ms) goes to Python on the host.",  # The cause and the numbers are those of the ledger.
}
LAUNCHES = [("other_compute", None, 200_000, 0.2), ("idle", "launch_bound", 800_000, 0.8)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_the_first_line_names_the_cause_of_the_first_finding(name: str, said: str) -> None:
    assert first_line(result_of(name)).replace("\xa0", " ").endswith(said)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_finding_that_explains_lost_time_has_a_name_for_it(name: str) -> None:
    result = result_of(name)
    verdict = judge(result.lead) if result.lead else None
    assert verdict is not None
    finding = explains(verdict, result.findings)
    # Hidden time has no cause in the profile; the first line also says so. A late rank's finding names the rank, the first line
    # the main loss of that rank, which is the lead rank.
    if finding is not None and "hidden" not in finding.explains.topics and "late_rank" not in finding.explains.topics:
        assert cause_words.of_finding(finding) is not None, finding.rule


def searching(**changed: object) -> Finding:
    found = Finding(
        "convolution-search",
        "critical",
        "cuDNN searches",
        act("Stop."),
        "high",
        ceiling_ms_per_step=0.7,
        explains=RULE.explains,
    )
    return replace(found, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "named"),
    [
        (searching(), True),
        (searching(ceiling_ms_per_step=0.4), True),  # Half of the 0.8 ms of lost time.
        (searching(ceiling_ms_per_step=0.39), False),  # Most of the lost time has another cause.
        (searching(confidence="low"), False),
        (searching(severity="info"), False),
        (searching(ceiling_ms_per_step=0.1, predicted_step_ms=0.4, predicted_speedup=2.5), True),  # 0.6 gained
        (searching(explains=Explains()), False),  # It has no cause of its own.
        (searching(explains=Explains(("data_wait",), topics=frozenset({"hidden"}))), False),  # The profile does not show it.
    ],
)
def test_a_finding_names_a_loss_if_it_is_certain_and_explains_most_of_it(finding: Finding, named: bool) -> None:
    result = replace(run_of(ledger=LAUNCHES), findings=[finding])
    expected = (
        "It waits for cuDNN's search for convolution algorithms." if named else "It waits for the host to launch kernels."
    )
    assert first_line(result).endswith(expected)


def test_a_gain_above_the_largest_loss_is_not_called_that_loss(tmp_path: Path) -> None:
    """Each step of 14 ms loads for 4 ms, computes for 8 ms, reads a value, and runs 2 ms of Python.

    Without the read, the host does both during the computation. Twenty kernels of 399 µs and 19 gaps of 1 µs take 8.00 ms, so
    6.00 ms of a step go. Only 2 ms of them are the wait for the read.
    """
    trace = ChromeTrace()
    for k in range(8):
        at = 14_000 * k
        trace.step(k, at, at + 13_990)
        trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 4_000)
        for i in range(20):
            begin, start = at + 4_000 + 12 * i, at + 4_020 + 400 * i
            trace.op("aten::mm", begin, begin + 11, [[4096, 4096], [4096, 4096]], ["c10::BFloat16"] * 2)
            trace.launch((begin + 3, begin + 8), (start, start + 399), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT")
        trace.op("aten::_local_scalar_dense", at + 4_300, at + 12_030)
        copy = "Memcpy DtoH (Device -> Pinned)"
        trace.launch((at + 4_305, at + 4_310), (at + 12_020, at + 12_022), copy, "gpu_memcpy", bytes=4)
        trace.host("cuda_runtime", "cudaStreamSynchronize", at + 4_312, at + 12_025)
    result = analysed(tmp_path, trace)
    assert result.findings[0].rule == "host-waits-for-gpu"
    said = first_line(result).replace("\xa0", " ")
    assert (
        said
        == "The GPU is busy 57 % of each 14.0 ms step. Without the host waiting for a result (sync), it takes 43 % (6.00 ms) less."
    )
