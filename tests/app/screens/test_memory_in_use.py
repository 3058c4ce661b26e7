"""Tests of the memory page without recorded allocations: used memory as a share and over time."""

from __future__ import annotations

import json
from pathlib import Path

from sawtooth.app.words.telemetry import in_use, use_over_time
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS
from tests.support.dumps import MIB, event, frame, write_snapshot
from tests.support.pages import charts, opened, run_of, words_of

GIB = 2**30
BAR = "st-prow"  # CSS class of a bar


def test_used_and_free_memory() -> None:
    assert in_use(38 * GIB, 152 * GIB) == "At most 38.0\u00a0GiB of 152\u00a0GiB of GPU memory is in use: 75\u00a0% stays free."
    assert in_use(38 * GIB, None) == "At most 38.0\u00a0GiB of GPU memory is in use."
    assert use_over_time(38.01 * GIB, 38.02 * GIB) is None  # The headline and the bar state the share.
    assert use_over_time(GIB, 2 * GIB) == "The use lies between 1.00\u00a0GiB and 2.00\u00a0GiB"


def _sampled(folder: Path, *used_gib: int) -> Path:
    """Write ten seconds of telemetry whose memory in use takes these values in turn."""
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    lines += [
        {"t_ns": BASE_NS + k * 10**8, "gpu_util": 50, "mem_total": 100 * GIB, "mem_used": used_gib[k % len(used_gib)] * GIB}
        for k in range(100)
    ]
    path = folder / f"nvml-{len(used_gib)}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_without_a_trace_the_page_draws_the_memory_in_use(app_data: DataFolder, tmp_path: Path) -> None:
    test = opened("memory", run_of(app_data, _sampled(tmp_path, 25)))
    text = words_of(test)
    assert "At most 25.0\u00a0GiB of 100\u00a0GiB of GPU memory is in use: 75\u00a0% stays free" in text
    assert BAR in text and not charts(test)  # The use stays the same, which the headline says.
    (line,) = charts(opened("memory", run_of(app_data, _sampled(tmp_path, 15, 25))))
    assert line["layout"]["yaxis"]["range"] == [0, 100]  # The whole memory, so that the free part is visible.


def test_a_memory_snapshot_shows_who_holds_the_peak(app_data: DataFolder, tmp_path: Path) -> None:
    stack = [frame("forward", "/job/net.py", 9)]
    file = write_snapshot(tmp_path / "memory.pickle", [], [event("alloc", 0, 3 * MIB, stack), event("alloc", 8 * MIB, MIB)])
    test = opened("memory", run_of(app_data, file), peak_by="Code")
    assert "The peak of GPU 0 is 4.00\u00a0MiB" in words_of(test)
    assert "forward (net.py:9)" in test.dataframe[0].value["operator"].tolist()
    assert len(charts(test)) == 1
    assert "memory snapshot only" in words_of(opened("verdict", run_of(app_data, file)))
