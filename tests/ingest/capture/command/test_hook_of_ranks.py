"""Tests of the hook in the ranks of a job, which profile the same steps."""

import os
from pathlib import Path

import pytest

from sawtooth.ingest.capture.command.hook import UNSHARED_START_STEP, Hook
from sawtooth.ingest.capture.command.loop_times import MIN_STEPS_BEFORE_PROFILE
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.settings import ONLY_RANK, HookSettings
from sawtooth.ingest.capture.in_process.rank_agreement import lead_steps
from tests.support.hooked_loop import MAIN, MS, WARM_UP, HookedLoop


@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize(("ms", "steps"), [(2, 46), (50, 38), (230, 37), (230, 53)])
def test_ranks_of_a_host_profile_the_same_steps(tmp_path: Path, ms: int, steps: int) -> None:
    """Rank 1 is a step ahead of rank 0, and from step 47 on, another function calls the step."""
    loops = [HookedLoop(tmp_path, rank=rank, ranks=2, ranks_here=2, after_s=0.0, steps=5) for rank in (1, 0)]
    for loop in (loops[0], *loops * (steps - 1), loops[1]):
        loop.site = WARM_UP if loop.steps < 47 else MAIN
        loop.run(1, ms)
    for loop in loops:
        loop.hook.finish()
    begin = MIN_STEPS_BEFORE_PROFILE + lead_steps(ms * MS)
    profiled_steps = [("start", begin), ("stop", min(begin + 6, steps))]
    assert [loop.profiled for loop in loops] == [profiled_steps, profiled_steps]
    assert {path.name for path in tmp_path.glob("trace-*")} == {"trace-rank0.json", "trace-rank1.json"}


def test_ranks_without_a_shared_folder_profile_from_a_fixed_step(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path, rank=3, ranks=16, ranks_here=8)
    loop.run(UNSHARED_START_STEP + 10, 50)
    assert loop.profiled[0] == ("start", UNSHARED_START_STEP)


def test_an_invalid_rank_of_a_launcher_is_ignored() -> None:
    folder = {"SAWTOOTH_RUN_FOLDER": "run"}
    for invalid in ({"RANK": "a", "WORLD_SIZE": "8"}, {"RANK": "3", "WORLD_SIZE": "all"}, {"RANK": "-1", "WORLD_SIZE": "-1"}):
        settings = HookSettings.of(folder | invalid)
        assert (settings.rank, settings.ranks, settings.ranks_here) == (None, 1, 1)
    settings = HookSettings.of(folder | {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"})
    assert (settings.rank, settings.ranks, settings.ranks_here) == (3, 8, 4)


def test_a_loop_that_begins_in_a_forked_process_is_marked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, forked = (Hook(HookSettings(tmp_path, 0, 1.0, None, 1, 1)) for _ in range(2))
    monkeypatch.setenv("SAWTOOTH_RUN_FOLDER", str(tmp_path))
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():  # A launcher sets these variables in the forked process.
        monkeypatch.setenv(name, value)
    forked.on_step(1)
    for item in (parent, forked):
        item.forget()
        item.on_step(1)
        item.on_step(1)
        item.leave()
    counts = {path.stem: path.read_bytes().count(b'"k": "mark"') for path in tmp_path.glob("marks-*.jsonl")}
    assert counts == {"marks-rank1": 2, f"marks-{os.getpid()}": 1}


def test_a_rank_recorded_alone_waits_for_no_other(tmp_path: Path) -> None:
    job = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "SAWTOOTH_RUN_FOLDER": str(tmp_path)}
    assert HookSettings.of(job).ranks_here == 2
    # The profile starts at a fixed step, as for ranks that share no folder.
    assert HookSettings.of(job | {ONLY_RANK: "rank 1"}).ranks_here == 1


@pytest.mark.usefixtures("several_processes")
def test_ranks_that_profile_again_profile_the_same_steps(tmp_path: Path) -> None:
    loops = [HookedLoop(tmp_path, rank=rank, ranks=2, ranks_here=2, every=60) for rank in (0, 1)]
    for _ in range(150):
        for loop in loops:
            loop.run(1, 50)
    for loop in loops:
        loop.hook.finish()
    runs = runs_to_pack(tmp_path)
    assert [[about["rank"] for _, about in run.sources if about["kind"] == "trace"] for run in runs] == [[0, 1]] * len(runs)
    assert len(runs) == 2
