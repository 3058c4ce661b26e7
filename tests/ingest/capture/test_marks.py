"""Tests of writing step marks."""

import json
from pathlib import Path

from sawtooth.ingest.capture.marks import FLUSH_NS, MarkWriter


class Clock:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def __call__(self) -> int:
        return self.now_ns


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_wall_times_of_marks_ignore_clock_steps(tmp_path: Path) -> None:
    clock, wall = Clock(), iter([1_700_000_000_000_000_000])  # The wall clock is read once.
    writer = MarkWriter(tmp_path / "marks.jsonl", rank=3, recorder="1.2", wall_ns=lambda: next(wall), monotonic_ns=clock)
    for index in range(3):
        clock.now_ns += 250_000_000
        writer.mark(index, batch=64, length=512.5 if index else None)
    writer.close()
    head, *marks = lines_of(tmp_path / "marks.jsonl")
    assert (head["k"], head["v"], head["rank"], head["recorder"]) == ("marks", 1, 3, "1.2")
    assert [mark["w"] for mark in marks] == [1_700_000_000_000_000_000 + 250_000_000 * n for n in (1, 2, 3)]
    assert marks[0] == {"k": "mark", "i": 0, "w": marks[0]["w"], "p": "train", "o": 0, "b": 64}
    assert marks[2]["n"] == 512.5


def test_a_killed_job_loses_at_most_one_second_of_marks(tmp_path: Path) -> None:
    clock = Clock()
    writer = MarkWriter(tmp_path / "marks.jsonl", monotonic_ns=clock)
    for index in range(25):
        clock.now_ns += FLUSH_NS // 10
        writer.mark(index, phase="profile")
    flushed_marks = lines_of(tmp_path / "marks.jsonl")[1:]
    assert 15 <= len(flushed_marks) < 25
    writer.close()
    writer.close()
    assert [mark["i"] for mark in lines_of(tmp_path / "marks.jsonl")[1:]] == list(range(25))
