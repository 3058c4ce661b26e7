"""Tests of the hook in a training process: marks, and begin and end of the profile.

The training never notices the hook.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sawtooth.ingest.capture.between_steps import BetweenSteps
from sawtooth.ingest.capture.command import hook
from sawtooth.ingest.capture.command.call_site import CallSite
from sawtooth.ingest.capture.command.graphs import Graphs
from sawtooth.ingest.capture.command.hook import ALONE_STEPS, Hook, watch_updates
from sawtooth.ingest.capture.command.loop_times import LEAST_STEPS, PATIENCE_S
from sawtooth.ingest.capture.command.parts import AT, LATER_PROFILES
from sawtooth.ingest.capture.command.recorded_runs import runs_of
from sawtooth.ingest.capture.command.settings import BY_ITSELF, HookSettings
from sawtooth.ingest.capture.in_process.profile_cost import LEAST_KEPT, sentences_in
from sawtooth.ingest.capture.in_process.profilers import Profilers
from sawtooth.ingest.capture.in_process.rank_agreement import lead

MS = 1_000_000


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the profilers of several ranks in this process run without waiting for each other."""
    monkeypatch.setattr(Profilers, "busy", False)


class Loop:
    """A training loop with a clock set by hand and a profiler that records when it runs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now_ns = 0
        self.profiled: list[tuple[str, int]] = []
        self.steps = 0
        chosen = {"steps": 3, "after_s": 1.0, "rank": None, "ranks": 1, "ranks_here": 1, **settings}
        self.between_steps = BetweenSteps()
        self.site = CallSite()
        self.hook = Hook(
            HookSettings(folder, **chosen),
            torch=self._torch(),
            clock_ns=lambda: self.now_ns,
            between_steps=self.between_steps,
            call_site=lambda *_: self.site,
        )

    def _torch(self) -> Any:
        loop = self

        class Profile:
            def __init__(self, on_trace_ready: Callable[[Any], None], **options: Any) -> None:
                assert options["record_shapes"]
                self._on_trace_ready = on_trace_ready

            def start(self) -> None:
                loop.profiled.append(("start", loop.steps))

            def stop(self) -> None:
                loop.profiled.append(("stop", loop.steps))
                self._on_trace_ready(self)

            def export_chrome_trace(self, path: str) -> None:
                Path(path).write_text('{"traceEvents": []}')

        kinds = SimpleNamespace(CPU="cpu", CUDA="cuda")
        cuda = SimpleNamespace(is_available=lambda: True)
        return SimpleNamespace(profiler=SimpleNamespace(ProfilerActivity=kinds, profile=Profile), cuda=cuda)

    def run(self, steps: int, ms: float, optimizer: object = "one") -> None:
        for _ in range(steps):
            self.now_ns += int(ms * MS)
            self.hook.on_step(optimizer)
            self.steps += 1


def marks_of(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("marks-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def test_a_steady_loop_is_profiled_once_and_every_step_is_marked(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.run(100, 50)
    loop.hook.finish()
    assert loop.profiled == [("start", LEAST_STEPS), ("stop", LEAST_STEPS + 4)]
    assert [path.name.split("-")[0] for path in tmp_path.glob("*.json")] == ["trace"]
    marks = marks_of(tmp_path)
    assert [mark["i"] for mark in marks] == list(range(100))
    assert [mark["i"] for mark in marks if mark["p"] == "profile"] == list(range(LEAST_STEPS + 1, LEAST_STEPS + 5))


@pytest.mark.parametrize(
    ("phase", "what"), [("eval", ["evaluated"]), ("checkpoint", ["saved"]), ("eval", ["evaluated", "saved"])]
)
def test_the_step_after_an_evaluation_or_a_checkpoint_is_marked(tmp_path: Path, phase: str, what: list[str]) -> None:
    loop = Loop(tmp_path, steps=0)
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
    """A loop with as many steps as the message asks for is profiled.

    There are 20 before it, and 2 s of 50 ms are 40; then 3, and one more at either end.
    """
    for steps, taken in ((needed - 1, []), (needed, [f"trace-{os.getpid()}.json"])):
        folder = tmp_path / str(steps)
        folder.mkdir()
        loop = Loop(folder, after_s=after_s)
        loop.run(steps, 50)
        loop.hook.finish()
        assert [path.name for path in folder.glob("*.json")] == taken


@pytest.mark.parametrize(("chosen", "then"), [(None, "1"), ("0", "0")])
def test_the_training_is_as_fast_after_the_profile_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, then: str
) -> None:
    """CUPTI stays attached unless PyTorch is told to detach it.

    A host-bound step then stays a fifth longer.
    """
    monkeypatch.setenv("TEARDOWN_CUPTI", chosen or "")  # restored afterwards, whatever the hook sets
    if chosen is None:
        monkeypatch.delenv("TEARDOWN_CUPTI")
    loop = Loop(tmp_path)
    loop.run(LEAST_STEPS, 50)
    assert os.environ.get("TEARDOWN_CUPTI") == chosen
    loop.run(10, 50)
    assert os.environ["TEARDOWN_CUPTI"] == then


def test_a_profile_waits_a_limited_time_for_the_warm_up(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for step in range(60):  # each step a twentieth shorter than the one before
        loop.run(1, 500 * 0.95**step)
    assert loop.profiled == []
    loop.run(40, 20)
    assert loop.profiled[0][0] == "start"
    restless = Loop(tmp_path / "other")
    (tmp_path / "other").mkdir()
    while restless.now_ns < (PATIENCE_S + 5) * 1e9:
        restless.run(10, 100 if (restless.steps // 10) % 2 else 300)
    assert restless.profiled[0][0] == "start"


def test_the_optimizer_with_fewest_steps_defines_the_steps(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for _ in range(60):
        loop.run(1, 30, "critic")
        loop.run(1, 30, "critic")
        loop.run(1, 30, "actor")
    loop.hook.finish()
    start, stop = (steps for _, steps in loop.profiled)
    assert stop - start == 4 * 3  # three steps of the loop and the one that the start cut
    assert {mark["o"] for mark in marks_of(tmp_path)} == {0, 1}


@pytest.mark.parametrize("first", [1, 5, 22, 24, 60])
def test_a_phase_that_ends_is_not_waited_for(tmp_path: Path, first: int) -> None:
    """An example is a search for the learning rate before the training, which has another optimizer."""
    loop = Loop(tmp_path)
    loop.run(first, 50, "search")
    loop.run(200, 50, "training")
    loop.hook.finish()
    begun = [step for what, step in loop.profiled if what == "start"]
    ended = [step for what, step in loop.profiled if what == "stop"]
    assert len(begun) == len(ended) and ended[-1] < first + 100
    (trace,) = tmp_path.glob("trace-*")
    assert trace.suffix == ".json"
    assert ended[-1] - begun[-1] == 4, "as many steps as were wanted, of one phase"


def test_alternating_optimizers_are_profiled(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for _ in range(60):
        loop.run(1, 30, "matrices")
        loop.run(1, 30, "the rest")
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    assert loop.profiled[1][1] - loop.profiled[0][1] == 2 * 4


def test_a_profile_ends_with_the_optimizer_that_began_it(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.run(22, 50, "critic")
    for _ in range(5):
        loop.run(1, 50, "actor")  # leads from its second step on
        loop.run(2, 50, "critic")
    assert loop.profiled[0] == ("start", LEAST_STEPS)
    assert loop.profiled[1][0] == "stop" and loop.profiled[1][1] <= LEAST_STEPS + 8


@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize(("ms", "steps"), [(2, 46), (50, 38), (230, 37), (230, 53)])
def test_ranks_of_a_host_profile_the_same_steps(tmp_path: Path, ms: int, steps: int) -> None:
    """Two ranks profile the same steps of a short job.

    At step 47 another function calls the step, as in the FSDP2 job of ``docs/evidence/accuracy.md``. Rank 1 is a step ahead.
    """
    loops = [Loop(tmp_path, rank=rank, ranks=2, ranks_here=2, after_s=0.0, steps=5) for rank in (1, 0)]
    for loop in (loops[0], *loops * (steps - 1), loops[1]):
        loop.site = WARM_UP if loop.steps < 47 else MAIN
        loop.run(1, ms)
    for loop in loops:
        loop.hook.finish()
    begin = LEAST_STEPS + lead(ms * MS)
    taken = [("start", begin), ("stop", min(begin + 6, steps))]
    assert [loop.profiled for loop in loops] == [taken, taken]
    assert {path.name for path in tmp_path.glob("trace-*")} == {"trace-rank0.json", "trace-rank1.json"}


def test_ranks_that_share_no_folder_profile_from_a_fixed_step(tmp_path: Path) -> None:
    loop = Loop(tmp_path, rank=3, ranks=16, ranks_here=8)
    loop.run(ALONE_STEPS + 10, 50)
    assert loop.profiled[0] == ("start", ALONE_STEPS)


@pytest.mark.parametrize("broken", ["start", "stop", "mark"])
def test_an_error_in_the_hook_ends_only_the_hook(tmp_path: Path, broken: str) -> None:
    loop = Loop(tmp_path)
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
    assert loop.hook._broken
    if broken != "mark":
        (trouble,) = tmp_path.glob("trouble-*.json")
        assert "CUPTI is taken" in json.loads(trouble.read_text())["error"]
        assert len(marks_of(tmp_path)) >= LEAST_STEPS, "what was marked before is kept"


def test_an_invalid_rank_of_a_launcher_is_ignored() -> None:
    folder = {"SAWTOOTH_RUN_FOLDER": "run"}
    for odd in ({"RANK": "a", "WORLD_SIZE": "8"}, {"RANK": "3", "WORLD_SIZE": "all"}, {"RANK": "-1", "WORLD_SIZE": "-1"}):
        settings = HookSettings.of(folder | odd)
        assert (settings.rank, settings.ranks, settings.ranks_here) == (None, 1, 1)
    settings = HookSettings.of(folder | {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"})
    assert (settings.rank, settings.ranks, settings.ranks_here) == (3, 8, 4)


def test_a_loop_that_begins_in_a_forked_process_is_marked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, stepped = (Hook(HookSettings(tmp_path, 0, 1.0, None, 1, 1)) for _ in range(2))
    monkeypatch.setenv("SAWTOOTH_RUN_FOLDER", str(tmp_path))
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():  # as a launcher sets them in the forked process
        monkeypatch.setenv(name, value)
    stepped.on_step(1)
    for each in (parent, stepped):
        each.forget()
        each.on_step(1)
        each.on_step(1)
        each.leave()
    counts = {path.stem: path.read_bytes().count(b'"k": "mark"') for path in tmp_path.glob("marks-*.jsonl")}
    assert counts == {"marks-rank1": 2, f"marks-{os.getpid()}": 1}


def test_a_rank_recorded_alone_waits_for_no_other(tmp_path: Path) -> None:
    job = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "SAWTOOTH_RUN_FOLDER": str(tmp_path)}
    assert HookSettings.of(job).ranks_here == 2
    assert HookSettings.of(job | {BY_ITSELF: "rank 1"}).ranks_here == 1, (
        "profiled from a fixed step on, as where ranks share no folder"
    )


def test_no_profile_is_taken_if_none_is_requested(tmp_path: Path) -> None:
    loop = Loop(tmp_path, steps=0)
    loop.run(200, 50)
    assert loop.profiled == []


def test_profiles_are_repeated_and_the_newest_are_kept(tmp_path: Path) -> None:
    loop = Loop(tmp_path, every=50)
    loop.run(1000, 50)
    loop.hook.finish()
    starts = [steps for what, steps in loop.profiled if what == "start"]
    assert starts == list(range(LEAST_STEPS, 1000, 50))
    later = sorted(int(path.stem.rpartition(AT)[2]) for path in tmp_path.glob(f"trace-*{AT}*.json"))
    assert later == starts[-LATER_PROFILES:]
    assert len(list(tmp_path.glob("trace-*.json"))) == LATER_PROFILES + 1, "the first stays"


def test_each_profile_becomes_a_run_with_the_steps_around_it(tmp_path: Path) -> None:
    loop = Loop(tmp_path, every=100)
    loop.run(250, 50)
    loop.hook.finish()
    runs = runs_of(tmp_path)
    assert [run.step for run in runs] == [20, 120, 220]
    steps = []
    for run in runs:
        (trace, marks) = (path for path, _ in run.sources)
        assert trace.name.startswith("trace-") and marks.read_text().startswith('{"k": "marks"')
        steps.append([json.loads(line)["i"] for line in marks.read_text().splitlines()[1:]])
    # all of them; then a quarter of the 100 steps between two profiles before and after
    assert steps == [list(range(250)), list(range(96, 146)), list(range(196, 246))]


@pytest.mark.usefixtures("several_processes")
def test_ranks_that_profile_again_stay_together(tmp_path: Path) -> None:
    loops = [Loop(tmp_path, rank=rank, ranks=2, ranks_here=2, every=60) for rank in (0, 1)]
    for _ in range(150):
        for loop in loops:
            loop.run(1, 50)
    for loop in loops:
        loop.hook.finish()
    runs = runs_of(tmp_path)
    assert [[about["rank"] for _, about in run.sources if about["kind"] == "trace"] for run in runs] == [[0, 1]] * len(runs)
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("steps", "long_ms", "ms", "wanted", "taken"),
    [
        (8, 28.0, 3.0, 5, 16),  # two rounds of 49 ms
        (8, 1000.0, 50.0, 5, 8),  # one of 1.35 s
        (8, 4000.0, 50.0, 5, 5),  # too long for a trace,
        (8, 4000.0, 50.0, 9, 16),  # unless as many steps are wanted
        (2, 60.0, 20.0, 5, 6),
        (64, 100.0, 5.0, 5, 5),  # a small part,
        (64, 200.0, 5.0, 5, 64),
        (65, 400.0, 5.0, 5, 5),  # seldom
        (8, 8.0, 5.0, 5, 5),  # hardly longer
        (8, 12.0, 5.0, 5, 5),  # a small part
    ],
)
@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize("ranks", [1, 2])
def test_complete_rounds_are_profiled(
    tmp_path: Path, ranks: int, steps: int, long_ms: float, ms: float, wanted: int, taken: int
) -> None:
    """A profile contains whole rounds.

    A round is a rollout and then updates. A profile that begins with the second update of a round contains whole rounds
    after its first step.
    """
    of_job = {"ranks": ranks, "ranks_here": ranks}
    loops = [Loop(tmp_path, steps=wanted, after_s=2.0, rank=rank if ranks > 1 else None, **of_job) for rank in range(ranks)]
    while not all(len(loop.profiled) == 2 for loop in loops):
        for loop in loops:
            loop.run(1, long_ms if loop.steps % steps == 3 % steps else ms)
        assert loops[0].steps < 900
    (((_, start), (_, stop)), *others) = (loop.profiled for loop in loops)
    assert stop - start == taken + 1
    assert (start % steps == 3 % steps) or taken == wanted
    assert all(other == loops[0].profiled for other in others)


def test_a_profile_waits_for_the_start_of_a_long_round(tmp_path: Path) -> None:
    """The profile waits for long rounds that have hardly begun.

    Two rounds of 1.2 s have begun when the loop has run for long enough. The third shows whether they have a constant
    period.
    """
    loop = Loop(tmp_path, after_s=2.0)
    for _ in range(5):
        loop.run(10, 20)
        loop.run(1, 1000)
    assert loop.profiled == [("start", 32), ("stop", 32 + 12)]


def test_a_later_profile_begins_at_the_same_place_of_a_round(tmp_path: Path) -> None:
    loop = Loop(tmp_path, every=50)
    for _ in range(60):
        loop.run(1, 28)
        loop.run(7, 3)
    starts = [step for what, step in loop.profiled if what == "start"]
    assert len(starts) > 3 and {step % 8 for step in starts} == {0} and set(np.diff(starts)) == {56}


WARM_UP, MAIN = CallSite(0, ("train.py:40",)), CallSite(1, ("train.py:55",))


def test_a_longer_loop_after_the_profiled_one_replaces_it(tmp_path: Path) -> None:
    # After a warm-up of 2 s with a profile, the training is profiled as soon as it has run for longer than that.
    loop = Loop(tmp_path)
    loop.site = WARM_UP
    loop.run(40, 50)
    loop.site = MAIN
    loop.run(39, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    loop.run(100, 50)
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * 2
    assert len(list(tmp_path.glob("trace-*"))) == 1
    marks = marks_of(tmp_path)
    assert [mark["at"] for mark in marks if "at" in mark] == [["train.py:40"], ["train.py:55"]]
    assert {mark.get("l", 0) for mark in marks[:40]} == {0} and {mark["l"] for mark in marks[40:]} == {1}
    assert sum(mark["p"] == "profile" for mark in marks[40:]) == 4


def test_a_loop_that_ended_with_its_profile_counts_with_its_length(tmp_path: Path) -> None:
    """A loop that ended with its profile counts with its own duration.

    It has 25 steps of 200 ms, and the last of them are profiled. The training is then profiled after the same time, not
    after 20 steps.
    """
    loop = Loop(tmp_path)
    loop.site = WARM_UP
    loop.run(LEAST_STEPS + 5, 200)
    loop.site = MAIN
    loop.run(95, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    loop.run(10, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * 2


def test_a_process_that_exits_at_once_still_writes_its_marks(tmp_path: Path) -> None:
    """A process that exits at once writes its marks and does not wait for the profiler.

    An example is a watchdog's exit when the GPU hangs: stopping the profiler would hang too.
    """
    loop = Loop(tmp_path)
    loop.run(LEAST_STEPS + 2, 50)
    loop.hook.leave()
    loop.run(1, 50)  # another thread is still in its loop
    assert loop.profiled == [("start", LEAST_STEPS)]
    assert len(marks_of(tmp_path)) == LEAST_STEPS + 2 and not list(tmp_path.glob("trouble-*"))


def test_a_short_loop_after_the_profiled_one_and_its_return_are_not_profiled(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for _ in range(3):
        loop.site = WARM_UP
        loop.run(60, 50)
        loop.site = MAIN
        loop.run(50, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]


@pytest.mark.parametrize("next_loop", [0, 5, 100])
@pytest.mark.parametrize("whole", [LEAST_KEPT - 1, LEAST_KEPT])
def test_a_profile_whose_loop_ends_is_kept_if_it_has_enough_steps(tmp_path: Path, whole: int, next_loop: int) -> None:
    """A profile with three whole steps is kept if its loop ends; the profile of a longer loop replaces it."""
    loop = Loop(tmp_path, steps=5)
    loop.site = WARM_UP
    loop.run(LEAST_STEPS + 1 + whole + 1, 50)
    loop.site = MAIN
    loop.run(next_loop, 50)
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * (2 if next_loop == 100 else 1)
    kept = whole == LEAST_KEPT
    assert len(list(tmp_path.glob("trace-*"))) == (1 if kept or next_loop == 100 else 0)
    early = [f"The profile ended after {whole} of 5 steps, because the loop ended."] if kept and next_loop < 100 else []
    assert sentences_in(tmp_path) == early


def test_a_profile_is_cancelled_if_another_loop_begins(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.site = WARM_UP
    loop.run(LEAST_STEPS + 2, 50)
    assert loop.profiled == [("start", LEAST_STEPS)]
    loop.site = MAIN
    loop.run(100, 50)
    loop.hook.finish()
    marks = [mark for mark in marks_of(tmp_path) if mark["p"] == "profile"]
    assert {mark["l"] for mark in marks[-4:]} == {1}


def test_updates_of_separate_groups_are_one_step(tmp_path: Path) -> None:
    loop = Loop(tmp_path)

    class Engine:
        """An engine like DeepSpeed's with ZeRO.

        Its optimizer steps once for each group of parameters, and another one for those on the host.
        """

        def _take_model_step(self, groups: int) -> str:
            loop.run(groups, 1.0)
            loop.run(groups, 1.0, "on the host")
            return "taken"

        def fails(self) -> None:
            raise RuntimeError

    engines = SimpleNamespace(DeepSpeedEngine=Engine)
    watch_updates(engines)
    loop.run(2, 1.0)  # the engine makes the optimizer's state
    assert [engines.DeepSpeedEngine()._take_model_step(groups=groups) for groups in (2, 1, 2)] == ["taken"] * 3
    with pytest.raises(TypeError):
        engines.DeepSpeedEngine()._take_model_step("no number")  # the next update is one again
    engines.DeepSpeedEngine()._take_model_step(3)
    loop.run(2, 1.0)
    loop.hook.finish()
    marks = marks_of(tmp_path)
    assert [(mark["i"], mark["o"]) for mark in marks] == [(i, 0) for i in range(8)]


class CUDAGraph:
    """The interface of torch.cuda.graphs.CUDAGraph without a GPU."""

    def capture_begin(self, pool: Any = None) -> None:
        """Begin."""

    def capture_end(self) -> None:
        """End."""

    def replay(self) -> None:
        """Replay."""


@pytest.mark.parametrize("holds_step", [True, False])
def test_each_replay_of_a_graph_with_a_step_is_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds_step: bool
) -> None:
    graphs, loop, graph = Graphs(), Loop(tmp_path), type("CUDAGraph", (CUDAGraph,), {})
    graphs.watch(SimpleNamespace(CUDAGraph=graph))
    graphs.on_step = loop.hook.on_step
    monkeypatch.setattr(hook, "GRAPHS", graphs)
    loop.run(3, 10.0)
    step = graph()
    step.capture_begin(pool=None)
    if holds_step:
        loop.run(1, 10.0)  # captured, which is no step
    step.capture_end()
    for _ in range(5):
        loop.now_ns += 1_000_000
        step.replay()
    loop.hook.finish()
    assert len(marks_of(tmp_path)) == 3 + (5 if holds_step else 0)


def test_a_failed_graph_capture_hides_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(CUDAGraph):
        def capture_begin(self, pool: Any = None) -> None:
            raise RuntimeError("a stream is capturing already")

    graphs, loop = Graphs(), Loop(tmp_path)
    graphs.watch(SimpleNamespace(CUDAGraph=Refusing))
    monkeypatch.setattr(hook, "GRAPHS", graphs)
    with pytest.raises(RuntimeError, match="already"):
        Refusing().capture_begin()
    loop.run(3, 10.0)
    loop.hook.finish()
    assert len(marks_of(tmp_path)) == 3
