"""Tests that the headline and the first finding name the same cause and time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.findings.rules.convolution_search import RULE
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.analysis.run.verdict import explains, judge
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words.run import first_line
from tests.support.actions import act
from tests.support.findings_of import NAMES, result_of
from tests.support.run_results import run_of

# the recording, and the part of its first line after the busy share
SAID = {
    "conv_searches": "It waits for cuDNN's search for convolution algorithms.",
    "checkpointing_io": "It waits for checkpoints in the loop.",
    "collected_garbage": "It waits for Python's garbage collection.",
    "loader_restarts": "It waits for loader workers that restart.",
    "boolean_mask": "goes to boolean masks, whose size the host waits for.",
    "mask_from_cpu": "goes to tensors made on the CPU.",  # The finding explains the step of the telemetry, so "do not show what it waits for" is absent.
    "checkpoint_unseen": "do not show what it waits for.",
    "conv_searches_off": "It waits for the host to launch kernels.",
    "slow_every_fourth": "25 % (3.00 ms) goes to Python on the host.",  # the cause and the numbers are those of the ledger
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
        (searching(ceiling_ms_per_step=0.4), True),  # half of the 0.8 ms lost
        (searching(ceiling_ms_per_step=0.39), False),  # most of the lost time has another cause
        (searching(confidence="low"), False),
        (searching(severity="info"), False),
        (searching(ceiling_ms_per_step=0.1, predicted_step_ms=0.4, predicted_speedup=2.5), True),  # 0.6 gained
        (searching(explains=Explains()), False),  # It has no cause of its own.
        (searching(explains=Explains(("data_wait",), topics=frozenset({"hidden"}))), False),  # the profile does not show it
    ],
)
def test_a_finding_names_a_loss_if_it_is_certain_and_explains_most_of_it(finding: Finding, named: bool) -> None:
    result = replace(run_of(ledger=LAUNCHES), findings=[finding])
    expected = (
        "It waits for cuDNN's search for convolution algorithms." if named else "It waits for the host to launch kernels."
    )
    assert first_line(result).endswith(expected)
