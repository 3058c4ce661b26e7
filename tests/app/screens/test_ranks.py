"""Tests of the Ranks screen with hand-made jobs: its verdict and its charts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.cluster import reduction
from sawtooth.analysis.cluster.storage import list_sources
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.format import duration_ms
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.app.jobs.whole_job import ingest_job
from sawtooth.app.page.parts.rank_panels import late_in_the_profile, on_basis, position_of
from sawtooth.app.theme import CAUSES
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.pages import charts, only_run, opened, run_of, words_of
from tests.support.pipelined import pipelined


def test_a_late_rank_is_highlighted_and_a_click_opens_it(app_data: DataFolder, tmp_path: Path) -> None:
    traces = job(4, 2, Planted(loader_us={3: 800.0}), mesh=True)
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)))
    test = opened("ranks", run)
    text = words_of(test)
    in_order = (
        "Rank 3 delays the job", "Feed rank 3 as fast as the others", "In the profile rank 3 takes longest by itself", "waits most for other ranks",
    )  # fmt: skip
    assert [text.index(words) for words in in_order] == sorted(text.index(words) for words in in_order)
    assert "Without the delay, a step takes ≈" in text
    assert "The others wait longest for node0001" in text
    communication = words_of(opened("communication", run))
    # half of it waits in each of the two groups
    assert "Data parallel transfers take 200\u00a0µs of a step" not in communication
    assert "Data parallel transfers take 100\u00a0µs of a step" in communication
    assert "of communication is exposed" in communication and "allreduce of" in communication
    squares, between = (chart["data"] for chart in charts(test)[:2])
    assert [f"<span>rank {i}</span>" in text for i in range(5)] == [True] * 4 + [False]
    assert squares[0]["y"] == [f"rank {i}" for i in range(4)]
    assert charts(test)[0]["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 1", "rank 2", "<b>late: rank 3</b>"]
    assert squares[1]["mode"] == "markers"
    assert between[0]["x"] == between[0]["y"] == ["node0000", "node0001"]
    by_host = opened("ranks", run, rows="by host", heat="Own time")
    assert "In the profile node0001 takes longest by itself" in words_of(by_host)
    assert "In the profile rank 3 waits least" in words_of(opened("ranks", run, heat="Waiting for others"))
    assert charts(by_host)[0]["data"][0]["y"] == ["node0000", "node0001"]


def test_a_rank_late_in_few_steps_is_reported_as_stalling(app_data: DataFolder, tmp_path: Path) -> None:
    traces = job(4, 4, Planted(loader_us={1: 8000.0}, late_in=frozenset({2, 5})), steps=7)
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)))
    text = words_of(opened("ranks", run)).replace("\u00a0", " ")
    assert re.search(
        r"Rank 1 stalls about 8(\.\d+)? ms in 2 of \d steps \(ProfilerStep#2, ProfilerStep#5\); the others wait", text
    ), text[:1500]
    assert "of a step on average" in text


def test_the_headline_agrees_with_a_map_that_shows_a_late_rank(app_data: DataFolder, tmp_path: Path) -> None:
    # Hosts of one job differ by as much under the profiler. The title must not say "No rank is a straggler" above the heat
    # map of a straggler.
    traces = job(2, 2, Planted(host_us={0: 1_000.0, 1: 1_300.0}))
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)))
    text = words_of(opened("ranks", run))
    assert re.search("<h1.*Under the profiler, rank 1 is 300\\s*µs behind the others", text)
    assert "No rank is a straggler" not in text


def test_gpus_without_steps_or_collectives_are_shown_by_recorded_time(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in range(0, 4000, 1000):
        for device in (0, 1):
            trace.op("aten::mm", at + 10, at + 60)
            trace.launch((at + 27, at + 30), (at + 40, at + 540), "gemm_kernel", "kernel", 7 + device, device=device)
    test = opened("ranks", run_of(app_data, trace.write(tmp_path / "two.json")))
    assert "2 GPUs are recorded, and no collective joins them" in words_of(test)
    text = words_of(test)
    assert "ms of the recorded time" in text
    assert text.count('<span class="st-ptime">3.53\u00a0ms</span>') == 2  # From the first operator at 0.01 ms to 3.54 ms.


@pytest.mark.slow
def test_hosts_that_never_wait_for_each_other_have_no_map_of_waits(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(job(4, 2, Planted()))))
    test = opened("ranks", run)
    assert not test.exception
    text = words_of(test)
    assert "This page failed" not in text
    assert "The others wait longest" not in text


def test_a_pipeline_is_shown_with_its_unavoidable_waits(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(pipelined([300, 300], 2))))
    text = words_of(opened("ranks", run)).replace("\u00a0", " ").replace("&#39;", "'")
    assert "No rank is a straggler; the pipeline's bubble is" in text
    assert "with 2 microbatches on 2 equal stages it would be 33 %" in text
    assert "Filling and draining the pipeline takes" in text


def summarised(tmp_path: Path) -> str:
    """Return the folder of the summaries of eight ranks, the fourth of which loads late."""
    (tmp_path / "traces").mkdir()
    for rank, trace in enumerate(job(8, 2, Planted(loader_us={3: 800.0}), mesh=True)):
        trace.write(tmp_path / "traces" / f"{rank}.json")
    for source in list_sources([str(tmp_path / "traces")]):
        summarise(source, str(tmp_path / "summaries"))
    return str(tmp_path / "summaries")


@pytest.mark.slow
def test_the_map_of_a_reduced_job_has_all_ranks(app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summaries = summarised(tmp_path)
    monkeypatch.setattr(reduction, "MAX_REPRESENTATIVES", 1)
    run = ingest_job(app_data, summaries, sources=[str(tmp_path)]).manifest.id
    test = opened("ranks", run)
    assert "Rank 3 delays the job" in words_of(test)
    # The summaries of all ranks show this.
    assert "parallel transfers take 100\u00a0µs of a step" in words_of(opened("communication", run))
    assert charts(test)[0]["data"][0]["y"] == [f"rank {i}" for i in range(8)]


def test_all_outputs_show_one_waiting_time_of_a_rank(app_data: DataFolder, tmp_path: Path) -> None:
    traces = job(4, 2, Planted(loader_us={3: 800.0}), mesh=True)
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)))
    test = opened("ranks", run, basis="as profiled")
    waits = re.findall(rf'title="{CAUSES["comm_wait"].label}: (.*?)"', words_of(test))
    by_step = opened("ranks", run, basis="as profiled", heat="Waiting for others")
    heat, squares = charts(by_step)[0]["data"]
    waited = [(label, carried[2]) for label, carried in zip(squares["y"], squares["customdata"], strict=True)]
    mean = {rank: fmean(ms for label, ms in waited if label == rank) for rank in heat["y"]}
    assert waits == [duration_ms(ms) for ms in mean.values() if ms]


@pytest.mark.slow
def test_representatives_wait_for_all_ranks_of_their_job(
    app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = summarised(tmp_path)
    monkeypatch.setattr(reduction, "MAX_REPRESENTATIVES", 2)
    manifest = ingest_job(app_data, summaries, opened=[6, 7], sources=[str(tmp_path)]).manifest
    result = analyse(manifest, Library(app_data))
    assert result.communication is not None and result.communication.heat is not None
    waits_ms = result.communication.heat.groupby("rank")["wait_ms"].mean()
    for rank in result.ranks:
        reported = {row.cause: row.ms_per_step or 0.0 for row in rank.ledger if row.owner == "exposed_comm"}
        assert reported.get("comm_wait", 0.0) == pytest.approx(waits_ms[rank.rank], abs=0.001)


@pytest.mark.parametrize(
    ("numbers", "job_ranks", "rank", "position"),
    [
        ((0, 5, 9), 1_024, 9, 2),
        ((0, 5, 9), 1_024, 500, None),
        ((1, 0), None, 1, 0),
        ((None, None), None, 1, 1),
        ((None, None), 40, 1, None),
    ],
)
def test_a_square_opens_the_rank_if_it_has_a_file_here(
    numbers: tuple[int | None, ...], job_ranks: int | None, rank: int, position: int | None
) -> None:
    result: Any = SimpleNamespace(ranks=[SimpleNamespace(rank=number) for number in numbers])
    communication: Any = SimpleNamespace(job_ranks=job_ranks)
    assert position_of(rank, result, communication) == position


def test_one_rank_of_several_has_advice_to_add_the_others(app_data: DataFolder, tmp_path: Path) -> None:
    trace = matmul_loop()
    trace.top["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 8}
    test = opened("ranks", run_of(app_data, trace.write(tmp_path / "rank0.json")))
    assert "trace of one of 8 ranks only" in words_of(test)
    assert "sawtooth ingest rank" in test.code[0].value


@pytest.mark.parametrize("view", ["ranks", "communication"])
def test_without_ranks_a_view_says_how_to_record_them(app_data: DataFolder, tmp_path: Path, loop: str, view: str) -> None:
    job_of_two = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(job(2, 2, Planted()))))
    text = words_of(test := opened(view, loop))
    assert "trains on one GPU" in text and "missing" not in text
    assert test.code[0].value == "sawtooth run torchrun --nproc-per-node 2 train.py"
    assert any(f"run={job_of_two}" in link.proto.query_string for link in test.main.get("page_link"))


@pytest.mark.parametrize("view", ["ranks", "communication"])
def test_the_search_does_not_offer_views_without_content(loop: str, view: str) -> None:
    sent = [json.loads(part.proto.json) for part in opened("verdict", loop).get("bidi_component") if part.proto.json]
    offered = [address for data in sent for _, address in data.get("screens", ())]
    assert any("view=idle" in address for address in offered)
    assert not any(f"view={view}" in address for address in offered)


def test_a_late_rank_of_two_is_named(app_data: DataFolder, tmp_path: Path) -> None:
    files = []
    for rank, comm_us in ((0, 200), (1, 50)):
        trace = matmul_loop()
        trace.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
        for k in range(4):
            at = k * 1000
            trace.launch(
                (at + 92, at + 95),
                (at + 745, at + 745 + comm_us),
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
            )
        files.append(trace.write(tmp_path / f"rank{rank}.json"))
    test = opened("ranks", run_of(app_data, *files))
    # Rank 0 spends 200 µs a step in the collective, rank 1 only 50: rank 0 waits 150 µs for rank 1.
    text = words_of(test)
    # Neither its kernels nor its host take longer, so it is late under the profiler and not the job's straggler.
    assert "Under the profiler, rank 1 is 150\u00a0µs behind the others; without it, the difference is not known" in text
    assert "In the profile rank 1 takes longest by itself" in text
    assert "the profiler may slow one host more than another" in text
    assert "Rank 0 waits most" in text
    heat = next(chart for chart in charts(test) if chart["data"][0]["type"] == "heatmap")
    assert heat["layout"]["xaxis"]["title"]["text"] == "step" and "ProfilerStep" not in str(heat["layout"]["xaxis"]["ticktext"])
    verdict = words_of(opened("verdict", only_run(app_data)))
    assert "Under the profiler, rank 1 is 150\u00a0µs behind the others" in verdict


def test_the_bars_of_the_run_are_not_called_profiled() -> None:
    """The note below the bars says that the profiled steps show the opposite."""
    assert on_basis("Rank 0 waits for rank 1", unprofiled=True) == "Without the profiler rank 0 waits for rank 1"
    assert on_basis("Rank 1 waits for rank 0", unprofiled=False) == "In the profiled steps rank 1 waits for rank 0"


@pytest.mark.parametrize(("late_ms", "named"), [((2.0, 0.5), "rank 0"), ((0.5, 2.0), None), ((0.9, 0.5), None)])
def test_a_profile_that_delays_another_rank_than_the_run_is_named(late_ms: tuple[float, float], named: str | None) -> None:
    # Rank 1 is the straggler of the run. A lead of 1.5 ms is 6 % of a profiled step of 25 ms, and 0.4 ms are only 1.6 %.
    ranks = [SimpleNamespace(rank=number, device=0, host=None, best=SimpleNamespace(mean_ms=25.0)) for number in range(2)]
    straggler = SimpleNamespace(positions=(1,), ranks=(1,), host=None, kind="gpu")
    waits = [SimpleNamespace(position=i, rank=i, device=0, late_ms=ms) for i, ms in enumerate(late_ms)]
    communication: Any = SimpleNamespace(job_ranks=None, stragglers=[straggler], ranks=waits)
    result: Any = SimpleNamespace(ranks=ranks)
    sentence = late_in_the_profile(result, communication)
    assert (named is None) == (sentence is None)
    if sentence is not None:
        assert "others wait for rank 0" in sentence and sentence.endswith("they wait for rank 1.")
