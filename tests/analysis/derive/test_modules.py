"""Tests of time by nn.Module, with the arithmetic beside each case.

Forward time goes to the module call that contains the launch, backward time to the module of the same sequence number.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sawtooth.analysis.findings.gpu_work import gpu_work
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.modules import OUTSIDE, module_changes, modules
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.module_trace import KERNEL, module, small_training, work


def opened(folder: Path, trace: ChromeTrace) -> tuple[Library, str]:
    data = DataFolder(folder / "data").create()
    run = ingest_into_runs(data, [(trace.write(folder / "t.json"), "t.json")]).runs[0]
    library = Library(data)
    analyse(run, library)
    return library, run.recordings[0].id


def by_name(recording: Recording) -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in modules(RankView(recording, 0, 0)).to_dict("records")}


def test_forward_and_backward_by_hand(tmp_path: Path) -> None:
    library, recording_id = opened(tmp_path, small_training())
    with library.open(recording_id) as recording:
        rows = by_name(recording)
    assert list(rows) == ["Net_0", "Linear_0", "Linear_1", OUTSIDE]  # as called
    own = {name: (round(row["forward_ms"] * 1000), round(row["backward_ms"] * 1000)) for name, row in rows.items()}
    assert own == {
        "Net_0": (5, 5),  # The addition and its backward.
        "Linear_0": (100, 50),
        "Linear_1": (20, 10),
        OUTSIDE: (6, 4),  # Loss 3, summing gradients 2, optimizer 1; the loss's backward 4.
    }
    assert rows["Net_0"]["total_gpu_ms"] == pytest.approx(0.190)  # 5 + 5 + 150 + 30
    assert sum(row["gpu_ms"] for row in rows.values()) == pytest.approx(0.200)  # 240 − 40, without a gap
    assert rows["Linear_1"]["path"] == "Net_0 / Linear_1"


def test_kernels_of_a_replayed_graph_have_the_names_of_its_capture(tmp_path: Path) -> None:
    trace = ChromeTrace()
    nodes: list[dict[str, str]] = [
        {"name": "layers.0.attention", "stream": "7"},
        {"str": "layers.0.mlp"},
        {"annotation": "layers.0.mlp", "autograd_phase": "backward"},
        {},
    ]
    for step in range(3):
        at = 1000 * step
        trace.step(step + 1, at, at + 1000)
        trace.op("replay", at + 8, at + 22)
        trace.host("cuda_runtime", "cudaGraphLaunch", at + 10, at + 20, correlation=step + 1)
        for place, words in enumerate(nodes):
            begin = at + 100 + 50 * place
            in_graph = {"correlation": step + 1, "graph id": 5, "graph node id": (5 << 32) + place}
            trace.gpu((begin, begin + 10 * (place + 1)), KERNEL, **in_graph)
            trace.events[-1]["args"] |= words
        trace.launch((at + 400, at + 405), (at + 410, at + 460), KERNEL)
        trace.events[-1]["args"] |= {"name": "not in a graph"}
    library, recording_id = opened(tmp_path, trace)
    with library.open(recording_id) as recording:
        rank = RankView(recording, 0, 0)
        rows, operators = by_name(recording), gpu_work(rank).rows.groupby("operator")["launches"].sum().to_dict()
    own = {name: (round(row["forward_ms"] * 1000), round(row["backward_ms"] * 1000)) for name, row in rows.items()}
    # two steps are counted; outside are the kernel without a name and the one without a graph
    assert own == {"layers.0.attention": (20, 0), "layers.0.mlp": (40, 60), OUTSIDE: (180, 0)}
    assert operators == {"layers.0.attention": 2, "layers.0.mlp": 4, "replay": 2, "ProfilerStep#2": 1, "ProfilerStep#3": 1}


def test_changes_are_matched_by_path_and_sum_to_the_change_of_the_whole(tmp_path: Path) -> None:
    library, recording_id = opened(tmp_path, small_training())
    with library.open(recording_id) as recording:
        a = modules(RankView(recording, 0, 0))
    b = a.assign(gpu_ms=a["gpu_ms"].where(a["name"] != "Linear_0", 0.060))  # 150 µs before
    b["total_gpu_ms"] = a["total_gpu_ms"] - a["path"].isin(["Net_0", "Net_0 / Linear_0"]) * 0.090
    b = b.replace({"Linear_1": "Linear_9", "Net_0 / Linear_1": "Net_0 / Linear_9"})
    rows = module_changes(a, b).set_index("name")
    assert rows.loc["Net_0", ["ms_a", "ms_b"]].tolist() == pytest.approx([0.190, 0.100])
    # A renamed module is missing on one side and new on the other.
    own = {"Net_0": 0.0, "Linear_0": -0.090, "Linear_1": -0.030, OUTSIDE: 0.0, "Linear_9": 0.030}
    assert rows["own_change_ms"].to_dict() == pytest.approx(own)


def test_a_recomputed_forward_belongs_to_the_module_that_checkpoints(tmp_path: Path) -> None:
    """Autograd's thread has its own sequence numbers: its 6 is not the main thread's."""
    trace = ChromeTrace()
    module(trace, "Net_0", 0, 60)
    module(trace, "Linear_0", 5, 20)
    work(trace, "aten::mm", 6, (10, 11), 6)
    module(trace, "Block_0", 22, 50)
    work(trace, "CheckpointFunction", 30, (40, 47), 7)
    trace.thread = 2
    trace.op("CheckpointFunctionBackward", 100, 150, **{"Sequence number": 7, "Fwd thread id": 1})
    work(trace, "aten::mm", 105, (110, 117), 6)
    work(trace, "MmBackward0", 120, (125, 139), 6, 2)
    work(trace, "MmBackward0", 160, (165, 167), 6, 1)
    library, recording_id = opened(tmp_path, trace)
    with library.open(recording_id) as recording:
        rows = by_name(recording)
    own = {name: (round(row["forward_ms"] * 1000), round(row["backward_ms"] * 1000)) for name, row in rows.items()}
    assert own == {"Net_0": (0, 0), "Linear_0": (1, 2), "Block_0": (7, 21), OUTSIDE: (0, 0)}


def test_replicas_in_threads_are_not_guessed(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for thread in (1, 2):
        trace.thread = thread
        at = 100 * thread
        module(trace, f"Linear_{thread}", at, at + 20)
        work(trace, "aten::mm", at + 2, (at + 10, at + 20), 3)
    for thread in (3, 4):
        trace.thread = thread
        work(trace, "MmBackward0", 100 * thread, (100 * thread + 10, 100 * thread + 30), 3, thread - 2)
    library, recording_id = opened(tmp_path, trace)
    with library.open(recording_id) as recording:
        rows = by_name(recording)
    assert rows[OUTSIDE]["backward_ms"] == pytest.approx(0.040)


def generated(rng: random.Random) -> ChromeTrace:
    """Return random nested module calls with operators in and between them, and backwards of some.

    They run on up to three threads, with or without steps.
    """
    trace = ChromeTrace()
    clock, gpu, sequence = 0.0, 10.0, 0
    made: list[int] = []

    def launch(name: str, number: int | None, origin: int = 0) -> None:
        nonlocal clock, gpu
        length = rng.randint(1, 40_000) / 1000
        start = max(gpu, clock) + rng.choice([0, 0.5, -2])  # Operations on another stream may overlap.
        work(trace, name, clock, (start, start + length), number, origin)
        gpu, clock = start + length, clock + 10

    def call(depth: int) -> None:
        nonlocal clock, sequence
        begin = clock
        clock += 1
        for _ in range(rng.randint(0, 4)):
            if depth < 3 and rng.random() < 0.5:
                call(depth + 1)
            else:
                sequence += rng.randint(0, 1)
                made.append(sequence)
                launch("aten::mm", sequence)
        clock += 1
        module(trace, f"{rng.choice(['Block', 'Linear'])}_{rng.randint(0, 3)}", begin, clock)

    steps = rng.choice([0, 5])
    for k in range(max(steps, 1)):
        trace.thread, begin = 1, clock
        call(0)
        launch("aten::add_", None)
        trace.thread = 2
        for number in rng.sample(made, len(made) // 2):
            launch("MmBackward0", number, rng.choice([1, 1, 2]))
        trace.thread = 1
        clock += 1
        if steps:
            trace.step(k, begin, clock)
    trace.gpu((gpu, gpu + 3), KERNEL)  # Its launch was lost.
    return trace


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(12))
def test_modules_and_outside_sum_to_all_gpu_work(tmp_path: Path, seed: int) -> None:
    library, recording_id = opened(tmp_path, generated(random.Random(seed)))
    with library.open(recording_id) as recording:
        complete = recording.rows(
            "SELECT sum(dur_ns), count(*) FROM gpu_ops JOIN gpu_op_steps s USING (gpu_op_id) WHERE s.step IN (SELECT step FROM steps WHERE counted) "
            "OR NOT EXISTS (SELECT 1 FROM steps WHERE counted)"
        )[0]
        rows = recording.frame("SELECT * FROM modules")
        by_operation = recording.frame(
            "SELECT coalesce(module, -1) AS module, sum(dur_ns)::BIGINT AS ns FROM gpu_ops JOIN gpu_op_steps s USING (gpu_op_id) "
            "WHERE s.step IN (SELECT step FROM steps WHERE counted) OR NOT EXISTS (SELECT 1 FROM steps WHERE counted) GROUP BY 1"
        )
    assert (rows["forward_ns"].sum() + rows["backward_ns"].sum(), rows["kernels"].sum()) == complete
    for total, own in (
        ("total_forward_ns", "forward_ns"),
        ("total_backward_ns", "backward_ns"),
        ("total_kernels", "kernels"),
        ("total_host_ns", "host_ns"),
    ):
        assert rows.loc[rows["parent"].isna(), total].sum() == rows[own].sum()
        for row in rows[rows["module"].notna()].to_dict("records"):
            assert row[total] == row[own] + rows.loc[rows["parent"] == row["module"], total].sum()
    own = dict(zip(by_operation["module"], by_operation["ns"], strict=True))
    for row in rows.fillna({"module": -1}).to_dict("records"):
        assert row["forward_ns"] + row["backward_ns"] == own.get(row["module"], 0)
