"""Tests of the user's own source line behind a Python call.

Library frames are skipped, and calls without a user's line are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sawtooth.analysis.findings.recorded.source_lines import (
    common_line,
    dominant_line,
    first_user_line,
    stale_lines,
    user_lines,
    user_stack,
)
from sawtooth.analysis.knowledge.frames import is_user_line
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop


@pytest.mark.parametrize(
    ("frame", "own"),
    [
        ("train.py(12): step", True),
        ("src/loop/train.py(240): <lambda>", True),
        ("model.pyx(3): forward", True),
        ("profile.py(7): main", True),  # A standard library name that people use for their own scripts.
        ("site-packages/torch/nn/modules/module.py(1501): _call_impl", False),
        ("torch/utils/data/dataloader.py(701): __next__", False),
        ("/usr/lib/python3.11/threading.py(982): run", False),
        ("threading.py(982): run", False),
        ("json/decoder.py(337): decode", False),
        ("transformers/trainer.py(2100): train", False),
        ("<frozen runpy>(88): _run_code", False),
        ("<built-in method item of Tensor object at 0x7f>", False),
        ("nn.Module: Linear_0", False),
        ("train.py", False),
        ("src/datasets/coco.py(31): __getitem__", True),  # A folder of the user with the name of a library.
        ("my/transformers/block.py(8): forward", True),
        ("code/train.py(12): step", True),
        ("code.py(12): step", True),
        ("/opt/env/lib/python3.12/site-packages/datasets/arrow_dataset.py(2): __getitem__", False),
        ("datasets/arrow_dataset.py(2): __getitem__", False),
        ("logging/__init__.py(1): info", False),
    ],
)
def test_lines_outside_libraries_and_built_ins_belong_to_the_user(frame: str, own: bool) -> None:
    assert is_user_line(frame) is own


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (["train.py(12): step", "aten::sort"], "most at train.py:12 in step"),
        (["aten::sort", "train.py(12): step"], "part of it at train.py:12 in step"),
        (["aten::sort"], None),
        (["train.py: main"], "most at train.py in main"),
        (["train.py(3): <module>"], "most at train.py:3"),
        ([], None),
    ],
)
def test_only_the_longest_place_is_called_most(places: list[str], words: str | None) -> None:
    assert first_user_line([{"place": place} for place in places]) == words


Call = tuple[str, float, float, int | None]  # Name, start and end in µs, and the number from 1 of the call around it.


def loop_with(*calls: Call, steps: int = 3) -> ChromeTrace:
    """Return a loop in whose trace Python's calls are recorded."""
    trace = matmul_loop(steps=steps)
    trace.top["with_stack"] = 1
    for number, (name, start, end, parent) in enumerate(calls, 1):
        facts = {"Python id": number, "Python parent id": parent, "Python thread": 0}
        trace.host("python_function", name, start, end, **facts)
    return trace


@contextmanager
def recorded(trace: ChromeTrace, folder: Path) -> Iterator[Recording]:
    with Library(DataFolder(folder / "data")) as library:
        run = ingest_into_runs(library.folder, [(trace.write(folder / "t.json"), "t.json")]).runs[0]
        with library.open(run.traces[0].id) as recording:
            yield recording


def test_the_innermost_user_line_above_the_library_is_found(tmp_path: Path) -> None:
    trace = loop_with(
        ("train.py(5): main", 11, 88, None),
        ("train.py(12): step", 12, 87, 1),
        ("torch/_tensor.py(40): item", 13, 86, 2),
        ("<built-in method item>", 14, 85, 3),
        ("torch/hub.py(1): load", 91, 95, None),
    )
    with recorded(trace, tmp_path) as recording:
        known = dict(recording.rows("SELECT name, python_call_id FROM python_calls JOIN names USING (name_id)"))
        lines = user_lines(recording, list(known.values()))
    assert {name: lines.get(call) for name, call in known.items()} == {
        "train.py(5): main": "train.py(5): main",
        "train.py(12): step": "train.py(12): step",
        "torch/_tensor.py(40): item": "train.py(12): step",
        "<built-in method item>": "train.py(12): step",
        "torch/hub.py(1): load": None,
    }


def test_the_stack_of_a_launch_has_the_frames_of_the_user(tmp_path: Path) -> None:
    trace = loop_with(
        ("train.py(5): main", 1, 989, None),
        ("torch/profiler/profiler.py(9): start", 2, 4, 1),
        ("torch/nn/modules/module.py(9): _call", 5, 988, 1),
        ("model.py(12): forward", 6, 980, 3),
    )
    with recorded(trace, tmp_path) as recording:
        starts = [row[0] for row in recording.rows("SELECT start_ns FROM gpu_ops ORDER BY start_ns")]
        # main was open when the recording began, so its line is the current one at that time
        assert stale_lines(recording) == {"train.py(5): main", "torch/profiler/profiler.py(9): start"}
        assert user_stack(recording, 0, starts[0]) == ("train.py: main", "model.py(12): forward")
        assert user_stack(recording, 0, starts[-1]) == ()  # A later step launched it, outside every recorded call.


def test_the_line_of_a_loop_is_shared_by_all_its_launches(tmp_path: Path) -> None:
    """``batch`` calls the same ``forward`` twice; each call launches a kernel."""
    trace = loop_with(
        ("train.py(5): batch", 1, 900, None),
        ("model.py(12): forward", 300, 340, 1),
        ("model.py(12): forward", 400, 440, 1),
        steps=2,
    )
    for start in (310, 410):
        trace.launch((start, start + 5), (start + 600, start + 601), "small")
    with recorded(trace, tmp_path) as recording:
        small = [row[0] for row in recording.rows("SELECT start_ns FROM gpu_ops WHERE dur_ns = 1000 ORDER BY 1")]
        assert common_line(recording, 0, small) == "train.py in batch"
        assert common_line(recording, 0, small[:1]) == "model.py in forward"
        assert common_line(recording, 0, []) is None


def test_host_events_have_the_open_line_of_the_user(tmp_path: Path) -> None:
    # The events are a collection that `step` calls, and driver calls. Their begin is neither a gap nor a GPU operation.
    trace = loop_with(
        ("train.py(5): main", 1, 980, None),
        ("train.py(12): step", 2, 970, 1),
        ("<built-in function collect>", 700, 800, 2),
        ("torch/hub.py(1): load", 981, 999, None),
        ("<built-in function collect>", 985, 990, 4),
    )
    trace.host("cuda_runtime", "cudaMalloc", 850, 860)
    trace.host("cuda_runtime", "cudaFree", 995, 996)
    with recorded(trace, tmp_path) as recording:
        at = dict(recording.rows("SELECT name, start_ns FROM named_runtime_calls WHERE name IN ('cudaMalloc', 'cudaFree')"))
        collected = recording.frame(
            "SELECT python_call_id AS id, start_ns, start_ns + dur_ns AS end_ns FROM named_python_calls WHERE name LIKE '%collect>' ORDER BY 2"
        )
        own = ("train.py: main", "train.py: step")
        assert [user_stack(recording, 0, start) for start in (*collected["start_ns"], at["cudaMalloc"], at["cudaFree"])] == [
            own, (), own, (),
        ]  # fmt: skip
        assert dominant_line(recording, collected) == "train.py in step"  # 100 of 105 µs
        assert dominant_line(recording, collected[1:]) is None
        assert dominant_line(recording, collected[:0]) is None


def test_launches_of_autograd_have_the_line_of_the_backward_call(tmp_path: Path) -> None:
    trace = loop_with(
        ("train.py(5): main", 1, 989, None),
        ("train.py(12): step", 2, 970, 1),
        ("torch/_tensor.py(40): backward", 700, 960, 2),
        ("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 705, 950, 3),
    )
    trace.thread = 2
    trace.launch((800, 805), (1900, 1907), "of_backward")
    trace.launch((980, 985), (1910, 1918), "later")
    with recorded(trace, tmp_path) as recording:
        starts = dict(recording.rows("SELECT name, start_ns FROM gpu_ops JOIN names USING (name_id)"))
        assert user_stack(recording, 0, starts["of_backward"]) == ("train.py: main", "train.py: step")
        assert user_stack(recording, 0, starts["later"]) == ()  # No backward pass runs at this time.
