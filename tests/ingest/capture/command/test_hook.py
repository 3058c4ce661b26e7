"""Tests of the hook in a training process, which marks steps and takes a profile."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.capture.command.loop_times import MAX_UNSTEADY_S, MIN_STEPS_BEFORE_PROFILE
from sawtooth.ingest.capture.command.parts import LATER_PROFILES, STEP_INFIX
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.settings import HookSettings
from tests.support.hooked_loop import HookedLoop, marks_of


def test_a_steady_loop_is_profiled_once_and_every_step_is_marked(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    loop.run(100, 50)
    loop.hook.finish()
    assert loop.profiled == [("start", MIN_STEPS_BEFORE_PROFILE), ("stop", MIN_STEPS_BEFORE_PROFILE + 4)]
    assert [path.name.split("-")[0] for path in tmp_path.glob("*.json")] == ["trace"]
    marks = marks_of(tmp_path)
    assert [mark["i"] for mark in marks] == list(range(100))
    assert [mark["i"] for mark in marks if mark["p"] == "profile"] == list(
        range(MIN_STEPS_BEFORE_PROFILE + 1, MIN_STEPS_BEFORE_PROFILE + 5)
    )


@pytest.mark.parametrize(
    ("phase", "what"), [("eval", ["evaluations"]), ("checkpoint", ["checkpoints"]), ("eval", ["evaluations", "checkpoints"])]
)
def test_the_step_after_an_evaluation_or_a_checkpoint_is_marked(tmp_path: Path, phase: str, what: list[str]) -> None:
    loop = HookedLoop(tmp_path, steps=0)
    for turn in range(4):
        loop.run(1, 50, "critic")
        loop.run(1, 50, "generator")
        for counted in what if turn == 1 else ():
            setattr(loop.between_steps, counted, 3)
    loop.hook.finish()
    assert [(mark["o"], mark["i"]) for mark in marks_of(tmp_path) if mark["p"] != "train"] == [(0, 2), (1, 2)]
    assert phase in {mark["p"] for mark in marks_of(tmp_path)}


@pytest.mark.parametrize(("after_s", "needed"), [(0.0, 25), (2.0, 45)])
def test_the_stated_number_of_steps_suffices_for_a_profile(tmp_path: Path, after_s: float, needed: int) -> None:
    """A profile needs 20 steps or 2 s (40 steps) before it, 3 steps, and a step before and after these."""
    for steps, profiles in ((needed - 1, []), (needed, [f"trace-{os.getpid()}.json"])):
        folder = tmp_path / str(steps)
        folder.mkdir()
        loop = HookedLoop(folder, after_s=after_s)
        loop.run(steps, 50)
        loop.hook.finish()
        assert [path.name for path in folder.glob("*.json")] == profiles


@pytest.mark.parametrize(("chosen", "expected"), [(None, "1"), ("0", "0")])
def test_the_training_is_as_fast_after_the_profile_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: str
) -> None:
    """PyTorch detaches CUPTI only if an environment variable requests this.

    With CUPTI attached, a host-bound step takes a fifth longer.
    """
    monkeypatch.setenv("TEARDOWN_CUPTI", chosen or "")  # The fixture restores the variable after the test.
    if chosen is None:
        monkeypatch.delenv("TEARDOWN_CUPTI")
    loop = HookedLoop(tmp_path)
    loop.run(MIN_STEPS_BEFORE_PROFILE, 50)
    assert os.environ.get("TEARDOWN_CUPTI") == chosen
    loop.run(10, 50)
    assert os.environ["TEARDOWN_CUPTI"] == expected


def test_a_profile_waits_a_limited_time_for_the_warm_up(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    for step in range(60):  # Each step is a twentieth shorter than the previous one.
        loop.run(1, 500 * 0.95**step)
    assert loop.profiled == []
    loop.run(40, 20)
    assert loop.profiled[0][0] == "start"
    unsteady = HookedLoop(tmp_path / "other")
    (tmp_path / "other").mkdir()
    while unsteady.now_ns < (MAX_UNSTEADY_S + 5) * 1e9:
        unsteady.run(10, 100 if (unsteady.steps // 10) % 2 else 300)
    assert unsteady.profiled[0][0] == "start"


@pytest.mark.parametrize("broken", ["start", "stop", "mark"])
def test_an_error_in_the_hook_ends_only_the_hook(tmp_path: Path, broken: str) -> None:
    loop = HookedLoop(tmp_path)
    if broken == "mark":
        loop.hook.settings = HookSettings(tmp_path / "gone", 3, 1.0, None, 1, 1)
    else:
        real = loop.hook._torch.profiler.profile

        class Broken(real):  # type: ignore[misc, valid-type]
            def __getattribute__(self, name: str) -> Any:
                if name == broken:
                    raise RuntimeError("CUPTI is taken")
                return super().__getattribute__(name)

        loop.hook._torch.profiler.profile = Broken
    loop.run(100, 50)
    assert loop.hook._is_off
    if broken != "mark":
        (trouble,) = tmp_path.glob("trouble-*.json")
        assert "CUPTI is taken" in json.loads(trouble.read_text())["error"]
        assert len(marks_of(tmp_path)) >= MIN_STEPS_BEFORE_PROFILE, "earlier marks stay"


def test_no_profile_is_taken_if_none_is_requested(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path, steps=0)
    loop.run(200, 50)
    assert loop.profiled == []


def test_profiles_are_repeated_and_the_newest_are_kept(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path, every=50)
    loop.run(1000, 50)
    loop.hook.finish()
    starts = [steps for what, steps in loop.profiled if what == "start"]
    assert starts == list(range(MIN_STEPS_BEFORE_PROFILE, 1000, 50))
    later = sorted(int(path.stem.rpartition(STEP_INFIX)[2]) for path in tmp_path.glob(f"trace-*{STEP_INFIX}*.json"))
    assert later == starts[-LATER_PROFILES:]
    assert len(list(tmp_path.glob("trace-*.json"))) == LATER_PROFILES + 1, "the first profile stays"


def test_each_profile_becomes_a_run_with_the_steps_around_it(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path, every=100)
    loop.run(250, 50)
    loop.hook.finish()
    runs = runs_to_pack(tmp_path)
    assert [run.step for run in runs] == [20, 120, 220]
    steps = []
    for run in runs:
        (trace, marks) = (path for path, _ in run.sources)
        assert trace.name.startswith("trace-") and marks.read_text().startswith('{"k": "marks"')
        steps.append([json.loads(line)["i"] for line in marks.read_text().splitlines()[1:]])
    # The first run has all steps. The others have a quarter of the 100 steps between two profiles, before and after.
    assert steps == [list(range(250)), list(range(96, 146)), list(range(196, 246))]


def test_a_process_that_exits_at_once_still_writes_its_marks(tmp_path: Path) -> None:
    """If a watchdog ends the process because the GPU hangs, stopping the profiler would hang too."""
    loop = HookedLoop(tmp_path)
    loop.run(MIN_STEPS_BEFORE_PROFILE + 2, 50)
    loop.hook.leave()
    loop.run(1, 50)  # Another thread is still in its loop.
    assert loop.profiled == [("start", MIN_STEPS_BEFORE_PROFILE)]
    assert len(marks_of(tmp_path)) == MIN_STEPS_BEFORE_PROFILE + 2 and not list(tmp_path.glob("trouble-*"))
