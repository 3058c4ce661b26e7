"""Real recordings whose truth an independent stopwatch gave (``truth.json`` beside them), where they are at hand.

Without them this file has nothing to run; the goldens of the replay, the idle causes and the estimate are elsewhere.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis.derive import ensure_derived
from analysis.recordings import Library
from ingest.recording import ingest_file
from ingest.schema import DataFolder

RECORDINGS = Path(os.environ.get("SAWTOOTH_SHARED", Path(__file__).parents[2] / "shared")) / "recordings"
TRACES = sorted(RECORDINGS.glob("*/*trace.json.gz"))
UNREPRESENTATIVE = {"resnet_2workers"}  # its profiled steps drained a full prefetch queue: only its telemetry shows the run
STOPWATCH = [t for t in TRACES if (t.parent / "truth.json").exists() and t.parent.name not in UNREPRESENTATIVE]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(tmp_path_factory.mktemp("recordings")).create()


@cache
def derived(
    trace: Path, folder: DataFolder
) -> tuple[dict[str, Any], list[tuple[str, str | None, int, float]], tuple[int, int]]:
    recording = ingest_file(trace, folder, keep_source=False).id
    ensure_derived(folder, recording)
    with Library(folder).open(recording) as opened:
        facts = {key: json.loads(value) for key, value in opened.rows("SELECT key, value FROM facts WHERE key LIKE 'device_%'")}
        rows = opened.rows("SELECT owner, cause, ns, unprofiled_ns_per_step FROM causes")
        window = opened.rows("SELECT sum(end_ns - start_ns) FROM windows")[0][0]
        gaps = opened.rows("SELECT sum(end_ns - start_ns) FROM gaps")[0][0]
    (own,) = facts.values()
    return own["estimate"], rows, (int(window), int(gaps))


def ids(traces: list[Path]) -> list[str]:
    return [f"{t.parent.name}-{t.name.split('.')[0]}" for t in traces]


@pytest.mark.parametrize("trace", TRACES, ids=ids(TRACES))
def test_the_replay_explains_the_recording_and_the_parts_sum(trace: Path, data: DataFolder) -> None:
    estimate, rows, (window, gaps) = derived(trace, data)
    assert abs(estimate["replay_error"]) <= 0.01
    assert abs(estimate["median_error"]) <= 0.03
    assert sum(ns for _, _, ns, _ in rows) == window
    assert sum(ns for _, cause, ns, _ in rows if cause) == gaps
    assert sum(ns for _, _, _, ns in rows) == pytest.approx(estimate["step_ns"], rel=1e-9)


@pytest.mark.parametrize("trace", STOPWATCH, ids=ids(STOPWATCH))
def test_the_estimate_is_near_the_stopwatch(trace: Path, data: DataFolder) -> None:
    truth = json.loads((trace.parent / "truth.json").read_text())["step_s_pipelined"] * 1e9
    estimate, _, _ = derived(trace, data)
    assert estimate["step_ns"] == pytest.approx(truth, rel=0.25)


CAUSES = {
    "mlp_launch_bound": ({"launch_bound", "python_host"}, 1),
    "gpt_sync": ({"host_sync"}, 2),
}


@pytest.mark.parametrize("trace", [t for t in TRACES if t.parent.name in CAUSES], ids=lambda t: t.parent.name)
def test_the_planted_cause_leads_the_unprofiled_column(trace: Path, data: DataFolder) -> None:
    wanted, among = CAUSES[trace.parent.name]
    _, rows, _ = derived(trace, data)
    ranked = sorted((r for r in rows if r[1] and r[0] == "idle"), key=lambda r: -(r[3] or 0))
    assert wanted & {cause for _, cause, _, _ in ranked[:among]}


DEVICE_BOUND = {"gpt_fp32", "gpt_fp32_bf16", "gpt_nosync", "mm_bf16", "mlp_cudagraph"}


@pytest.mark.parametrize("trace", STOPWATCH, ids=ids(STOPWATCH))
def test_what_the_device_bounds_is_called_so(trace: Path, data: DataFolder) -> None:
    estimate, _, _ = derived(trace, data)
    assert estimate["device_bound"] is (trace.parent.name in DEVICE_BOUND)
