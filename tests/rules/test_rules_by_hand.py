"""Rules whose trouble cannot be recorded on demand, on a loop and telemetry built by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.findings import Finding, RuleInput
from analysis.rank_waits import Communication, Straggler
from analysis.recordings import Library
from analysis.results import analyse
from analysis.rules.straggling_rank import check as straggling
from app.intake import bring_in
from ingest.schema import DataFolder
from tests.chrome_trace import BASE_NS, matmul_loop
from tests.run_results import run_of

POWER_CAP, SOFTWARE_HEAT, HARDWARE_SLOWDOWN = 0x4, 0x20, 0x8  # bits of NVML's clock event reasons


def findings(folder: Path, throttled: int, reason: int) -> list[Finding]:
    """Analyse a loop with 60 samples at 10 Hz, of which ``throttled`` carry ``reason`` at 1,200 MHz instead of 1,980."""
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    for i in range(60):
        held = 20 <= i < 20 + throttled
        sample = {"t_ns": BASE_NS + i * 100_000_000, "gpu_util": 100, "power_w": 500.0, "sm_mhz": 1200 if held else 1980}
        lines.append({**sample, "throttle": reason if held else 0})
    telemetry = folder / "nvml.jsonl"
    telemetry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    library = Library(DataFolder(folder / "data"))
    trace = matmul_loop().write(folder / "trace.json")
    run = bring_in(library.folder, [(trace, trace.name), (telemetry, telemetry.name)]).runs[0]
    found = analyse(run, library).findings
    library.close()
    return found


@pytest.mark.parametrize("reason", [SOFTWARE_HEAT, HARDWARE_SLOWDOWN])
def test_clocks_held_down_by_heat_or_hardware_are_named(tmp_path: Path, reason: int) -> None:
    # 12 of 60 samples of 0.1 s: 1.2 s of the 5.9 s between the first sample and the last, 20 %.
    found = next(f for f in findings(tmp_path, 12, reason) if f.rule == "thermal-slowdown")
    assert "held the clocks down for 20% of the sampled time at 1200 MHz" in found.title
    assert found.severity == "warning"
    row = found.evidence[0]
    assert row["end_ns"] - row["start_ns"] == 1_200_000_000


@pytest.mark.parametrize(("throttled", "reason"), [(2, SOFTWARE_HEAT), (30, POWER_CAP), (0, 0)])
def test_two_samples_of_heat_and_a_power_cap_are_no_slowdown_by_heat(tmp_path: Path, throttled: int, reason: int) -> None:
    assert [f.title for f in findings(tmp_path, throttled, reason) if f.rule == "thermal-slowdown"] == []


class NoRows:
    """A recording without gaps."""

    def frame(self, sql: str, parameters: object = None) -> pd.DataFrame:
        return pd.DataFrame(columns=["start_ns", "end_ns"])


def late_rank(profiled_ms: float, best_ms: float, late_ms: float) -> list[Finding]:
    """Return what is said of a run of ``profiled_ms`` a step in which the others wait ``late_ms`` for rank 1."""
    run = run_of(ledger=[("other_compute", None, round(profiled_ms * 1e6), best_ms)], best_ms=best_ms, source="estimate")
    assert run.lead is not None
    late = Straggler(1, 1, late_ms, late_ms / profiled_ms, 1.0, None, None, None)
    met = Communication(pd.DataFrame(), (), late, 0)
    return list(straggling(RuleInput(replace(run, communication=met), run.lead, NoRows())))  # type: ignore[arg-type]


def test_a_late_rank_is_predicted_to_be_waited_for_no_more() -> None:
    # The others wait 25 ms of 40; nothing of it is the profiler's: 40 − 25 = 15.
    (found,) = late_rank(40.0, 40.0, 25.0)
    assert (found.severity, found.confidence) == ("critical", "high")
    assert found.predicted_step_ms == pytest.approx(15.0)


def test_lateness_that_the_profiler_may_have_made_is_not_predicted() -> None:
    # Profiled 17, without the profiler 10.9: of the 12 ms that the others wait, the 6.1 that the profiler adds may be half or all.
    (found,) = late_rank(17.0, 10.9, 12.0)
    assert (found.severity, found.confidence, found.predicted_step_ms) == ("info", "low", None)
    assert "the profiler alone slows the host by 6.1 ms" in found.prediction_note


def test_what_the_profiler_adds_is_taken_off_the_waiting() -> None:
    # Profiled 40, without the profiler 35: 25 − 5 = 20 ms of waiting are left, 35 − 20 = 15.
    (found,) = late_rank(40.0, 35.0, 25.0)
    assert found.predicted_step_ms == pytest.approx(15.0)
