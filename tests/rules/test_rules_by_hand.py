"""Rules whose trouble cannot be recorded on demand, on a loop and telemetry built by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from analysis.findings import RuleInput
from analysis.recordings import Library
from analysis.results import analyse
from analysis.rules import small_batch
from analysis.rules.python_between_operators import how_often
from analysis.rules.straggling_rank import check as straggling
from analysis.run_result import Communication, Finding, RankWaits, RunResult, Straggler
from app.intake import bring_in
from ingest.schema import DataFolder
from tests.chrome_trace import BASE_NS, ChromeTrace, matmul_loop
from tests.run_results import run_of

POWER_CAP, SOFTWARE_HEAT, HARDWARE_SLOWDOWN = 0x4, 0x20, 0x8  # bits of NVML's clock event reasons


def findings(folder: Path, throttled: int, reason: int) -> list[Finding]:
    """Return what is found in ``sampled``."""
    return sampled(folder, throttled, reason).findings


def sampled(
    folder: Path, throttled: int = 0, reason: int = 0, later_s: int = 0, util: int = 100, loop: ChromeTrace | None = None
) -> RunResult:
    """Analyse a loop with 60 samples at 10 Hz from ``later_s`` on, of which ``throttled`` carry ``reason`` at 1,200 MHz instead of 1,980."""
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    for i in range(60):
        held = 20 <= i < 20 + throttled
        sample = {
            "t_ns": BASE_NS + later_s * 1_000_000_000 + i * 100_000_000,
            "gpu_util": util,
            "power_w": 500.0,
            "sm_mhz": 1200 if held else 1980,
        }
        lines.append({**sample, "throttle": reason if held else 0})
    telemetry = folder / "nvml.jsonl"
    telemetry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    library = Library(DataFolder(folder / "data"))
    trace = (loop or matmul_loop()).write(folder / "trace.json")
    run = bring_in(library.folder, [(trace, trace.name), (telemetry, telemetry.name)]).runs[0]
    found = analyse(run, library)
    library.close()
    return found


@pytest.mark.parametrize(("later_s", "words"), [(-120, "ends 1.9"), (90, "begins 1.5 minutes after"), (-30, None), (30, None)])
def test_telemetry_of_another_time_judges_nothing(tmp_path: Path, later_s: int, words: str | None) -> None:
    """Six seconds of samples at 10 %, two minutes before the trace (they end 114.1 s before it) or 90 s after it, are of another run."""
    result = sampled(tmp_path, later_s=later_s, util=10)
    assert result.lead is not None and result.lead.represents is not None
    told = [d.sentence for d in result.diagnostics if d.key == "telemetry_elsewhere"]
    util = result.metrics["nvml_gpu_util_mean"]
    if words is None:
        assert (told, util.trust, result.lead.represents.represents) == ([], "ok", False)
    else:
        assert words in told[0] and (util.trust, util.notes[-1]) == ("caution", told[0])
        assert result.lead.represents.represents is None and result.lead.best.source != "telemetry"


def test_a_loader_whose_queue_was_full_while_the_profiler_looked_is_named(tmp_path: Path) -> None:
    # Kernels work 0.7 of each profiled step of 1 ms, and 10 % of the time outside the profile: there a step seems to take 7 ms.
    loop = matmul_loop()
    for k in range(4):
        loop.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000 * k + 2, 1000 * k + 5)
    found = sampled(tmp_path, later_s=30, util=10, loop=loop).findings[0]
    assert (found.rule, found.severity) == ("prefetch-queue-hid-the-loader", "critical")
    assert "telemetry says about 7 ms for the run" in found.title
    assert found.predicted_step_ms == pytest.approx(1.0, rel=0.1)  # less what recording cost
    assert found.ceiling_ms_per_step == pytest.approx(6.0, rel=0.05)
    assert found.evidence and found.changes and found.risk


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


def late_rank(*alone_ms: float | None) -> Finding:
    """Return what is said of a run of 40 ms a step in which rank 1 comes 25 ms late; alone, the ranks would take ``alone_ms`` a step."""
    run = run_of(ledger=[("other_compute", None, 60_000_000, 40.0)], best_ms=40.0, source="estimate")
    assert run.lead is not None
    late = Straggler(1, 1, 25.0, 0.5, 1.0, None, None, None)
    waits = tuple(RankWaits(i, i, 0, 0.0, 0.0, None, None, None, ms) for i, ms in enumerate(alone_ms))
    met = Communication(pd.DataFrame(), waits, late, 0)
    (found,) = straggling(RuleInput(replace(run, communication=met), run.lead, NoRows()))  # type: ignore[arg-type]
    return found


def test_a_late_rank_is_predicted_to_be_as_fast_as_the_slowest_other() -> None:
    # Alone rank 1 takes 50 ms, the others 20 and 30: as fast as they, it gains 20 of 50, which of a step of 40 is 16.
    found = late_rank(20.0, 50.0, 30.0)
    assert (found.severity, found.confidence) == ("critical", "high")
    assert (found.predicted_step_ms, found.ceiling_ms_per_step) == (pytest.approx(24.0), pytest.approx(16.0))


@pytest.mark.parametrize("alone_ms", [(49.0, 50.0), (60.0, 50.0), (None, 50.0), (20.0, None)])
def test_lateness_that_only_the_profiler_makes_is_not_predicted(alone_ms: tuple[float | None, ...]) -> None:
    found = late_rank(*alone_ms)
    assert (found.severity, found.confidence) == ("info", "low")
    assert found.predicted_step_ms is None and found.ceiling_ms_per_step is None


@pytest.mark.parametrize(
    ("times", "steps", "words"),
    [(2, 7, "2 times in 7 steps"), (1, 3, "once in 3 steps"), (4, 4, "once a step"), (9, 3, "3 times a step")],
)
def test_how_often_python_holds_the_launches_up(times: int, steps: int, words: str) -> None:
    assert how_often(times, steps) == words


def test_a_small_batch_is_told_by_what_the_gpu_works(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stopwatch says 4 ms, the estimate loses 4.2 ms to launches: the GPU works 1 of the 4 ms, so four times the batch fits, not millions.
    monkeypatch.setattr(small_batch, "searching_convolutions", lambda given: SimpleNamespace(count=0))
    run = run_of(
        ledger=[("other_compute", None, 1_000_000, 1.0), ("idle", "launch_bound", 6_000_000, 4.2)], best_ms=4.0, source="user"
    )
    assert run.lead is not None
    memory = SimpleNamespace(memory_peak_bytes=1e9, memory_total_bytes=150e9)
    (found,) = small_batch.check(RuleInput(run, run.lead, NoRows(), memory))  # type: ignore[arg-type]
    assert found.title.startswith("The host takes 4 ms to launch a step that keeps the GPU busy for 1 ms;")
    assert "about 4.0 times as large" in found.fix
    assert found.ceiling_ms_per_step == pytest.approx(3.0)
