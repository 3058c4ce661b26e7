"""Tests of findings from telemetry that a profile confirms, corrects or cannot show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.findings.sampled.from_telemetry import SampledHost
from sawtooth.analysis.findings.sampled.joined import statements
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.telemetry.diagnosis.diagnose import diagnose
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.signal.steady import SteadyPart
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.telemetry.troughs import Troughs
from tests.support.run_results import finding_of, run_of
from tests.support.sampled_hosts import GIB, Trouble, host

SAMPLES = "b" * 16


def sampled(works: float, device: int = 0, period_s: float | None = None) -> DeviceTelemetry:
    return DeviceTelemetry(
        recording_id=SAMPLES, device=device, name=None, uuid=None, first_ns=0, last_ns=1, period_s={"util_pct": 1.0}, coverage=1.0,
        steady=SteadyPart(None, None, "x"), means={"util_pct": works}, memory_peak_bytes=None, memory_total_bytes=None, signal=None,
        signal_column=None, sawtooth=Sawtooth(period_s, None, None), phases=(), throttling=(),
    )  # fmt: skip


def joined(*troubles: Trouble, result: RunResult | None = None, works: float = 70, found: tuple[Finding, ...] = (), period_s: float | None = None) -> dict[str, tuple[str, str]]:  # fmt: skip
    """Return state and reason by statement; the profile is of GPU 0 of four and is busy for 70 %."""
    result = result or run_of(metrics={"sm_efficiency": 0.25, "tensor_core_time_share": 0.6})
    lead = replace(result.ranks[0], telemetry=sampled(works, period_s=period_s))
    seen = SampledHost(SAMPLES, diagnose(host(5, gpus=4, seconds=1800, troubles=troubles)), (), 4, None, {})
    return {one.statement: (one.state, one.because) for one in statements(result, lead, [seen], found)}


@pytest.mark.parametrize(("works", "state", "fill"), [(72, "confirmed", "70 %"), (98, "corrected", "only 70 %")])
def test_the_share_of_work(works: float, state: str, fill: str) -> None:
    (title, (found, because)) = next(iter(joined(works=works).items()))
    assert title == f"The samples show the GPU in use {works} % of the time" and found == state
    assert because == f"The profile shows it busy {fill} of the run's step."


@pytest.mark.parametrize(("cause", "state"), [("data_wait", "confirmed"), ("python_host", "corrected")])
def test_the_source_of_dips_by_the_waits_in_them(cause: str, state: str) -> None:
    dips = replace(run_of(), troughs=Troughs(3, ((cause, 900), ("launch_bound", 100))))
    answer = joined(Trouble("utilization-sawtooth", (0, 1, 2, 3), 8), result=dips, period_s=8.1)
    (judged,) = [value for title, value in answer.items() if "dips every" in title]
    assert judged[0] == state and "90 % of the lost time in the dips" in judged[1]


def test_the_source_of_dips_by_the_findings_of_the_profile() -> None:
    dips = Trouble("utilization-sawtooth", (0, 1, 2, 3), 8)
    (alone,) = [value for title, value in joined(dips).items() if "dips every" in title]
    assert alone[0] == "telemetry alone"
    found = (finding_of("data-loader-starves-gpu"),)
    (judged,) = [value for title, value in joined(dips, found=found).items() if "dips every" in title]
    assert judged[0] == "confirmed" and "data-loader-starves-gpu" in judged[1]


@pytest.mark.parametrize(("sm", "state"), [(0.25, "confirmed"), (0.9, "corrected")])
def test_few_working_sms_by_the_grids_of_the_kernels(sm: float, state: str) -> None:
    answer = joined(Trouble("low-activity", (0, 1, 2, 3), 20), result=run_of(metrics={"sm_efficiency": sm}))
    (judged,) = [value for title, value in answer.items() if "of the SMs while" in title]
    assert judged == (
        state,
        f"According to their grid sizes, the profiled kernels use {100 * sm:.0f} % of the SMs on average over the run's step.",
    )


def test_growing_memory_by_the_allocations_of_the_profile() -> None:
    growth = Trouble("memory-growth", (0,), 9 * GIB)
    for found, state in (((), "telemetry alone"), ((finding_of("memory-creep"),), "confirmed")):
        (judged,) = [value for title, value in joined(growth, found=found).items() if "grows from" in title]
        assert judged[0] == state


def test_findings_only_from_telemetry_say_so() -> None:
    own, other = Trouble("thermal-throttling", (0,), 0.5, 300, 900), Trouble("thermal-throttling", (2,), 0.6, 300, 900)
    answer = joined(own, other)
    assert answer["Heat reduces the clock of GPU 0 by 50 %"] == (
        "telemetry alone",
        "A profile does not record clocks or the reasons for throttling.",
    )
    assert answer["Heat reduces the clock of GPU 2 by 40 %"] == ("telemetry alone", "The profile is of another GPU.")


def test_without_samples_of_the_profiled_gpu_nothing_is_judged() -> None:
    result = run_of()
    assert statements(result, result.ranks[0], [], ()) == ()
