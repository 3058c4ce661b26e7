"""Tests of several ranks in one timeline: simultaneous events are at one place.

Differences between the ranks' clocks are removed.
"""

import json
from pathlib import Path

from sawtooth.ingest.schema import DataFolder
from tests.support import nsight_export
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import opened, run_of


def test_all_ranks_are_on_one_clock(app_data: DataFolder, tmp_path: Path) -> None:
    files = [trace.write(tmp_path / f"rank{rank}.json") for rank, trace in enumerate(job(2, 2, Planted(clock_us={1: 5000})))]
    run = run_of(app_data, *files)
    alone, together = (tracks(run, **query) for query in ({"ranks": "false"}, {}))
    assert len(alone) == 1
    assert len(together) == 2
    assert together[0]["offset"] == 0
    assert abs(together[1]["offset"]) < 500_000, "rank 1's clock is 5 ms ahead, and its trace began with the other"
    sources = [lane["source"] for lane in together[1]["lanes"]]
    assert sources[:2] == ["gaps", "gpu"]
    assert "python" not in sources
    assert all(lane["folded"] for lane in together[1]["lanes"] if lane["source"] == "operators")
    heat = data(run)["heat"]
    assert [row["label"].split(" ·")[0] for row in heat] == ["rank 0", "rank 1"]
    assert len(heat[1]["steps"]) == len(heat[0]["steps"]) > 1
    for own_rank, others in zip(heat[0]["steps"], heat[1]["steps"], strict=True):
        assert min(own_rank[1], others[1]) > max(own_rank[0], others[0]), (
            "on the picture's clock, a step of both is at one time"
        )
    assert data(run, ranks="false")["heat"] == []


def test_the_main_thread_is_first_and_the_backward_thread_is_named(app_data: DataFolder, tmp_path: Path) -> None:
    """Autograd's thread calls the runtime more often, and its number does not explain it."""

    def lanes(thread: int) -> list[tuple[str, bool]]:
        trace = matmul_loop(steps=3)
        trace.thread = thread
        for step in range(3):
            for call in range(4):
                at = 1000.0 * step + 800 + 20 * call
                trace.op("autograd::engine::evaluate_function: MmBackward0", at, at + 15)
                trace.launch((at + 2, at + 4), (at + 20, at + 25), "gemm")
        (track,) = tracks(run_of(app_data, trace.write(tmp_path / f"backward-{thread}.json")))
        return [
            (lane["label"], lane.get("folded", False)) for lane in track["lanes"] if lane["source"] in ("operators", "calls")
        ]

    assert lanes(2) == [
        ("Main operators", False),
        ("Main calls", False),
        ("Backward operators", True),
        ("Backward calls", True),
    ]
    own = matmul_loop(steps=3).thread
    assert not any("Backward" in label for label, _ in lanes(own)), "a backward pass on the loop's own thread, as on a CPU"


def test_threads_with_one_name_are_distinguished(app_data: DataFolder, tmp_path: Path) -> None:
    export = nsight_export.write(tmp_path / "two.sqlite", nsight_export.tables((11, 12)))
    labels = [lane["label"] for lane in tracks(run_of(app_data, export))[0]["lanes"]]
    assert len(labels) == len(set(labels)) > 4, labels


def tracks(run: str, **query: str) -> list[dict]:
    return list(data(run, **query)["tracks"])


def data(run: str, **query: str) -> dict:
    """Return what the page passes to the timeline's component."""
    test = opened("timeline", run, **query)
    (proto,) = (element.proto for element in test.main if "tracks" in str(element.proto))
    return dict(json.loads(proto.json))
