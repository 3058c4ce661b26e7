"""Tests of the progress that is reported from the marks of a running training."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sawtooth.ingest.capture.command.progress import (
    MAX_REPORTED_STEPS,
    MarksTail,
    ProgressReporter,
    ProgressSink,
    StepRate,
    on_stderr,
    step_rate_from,
    to_sampler,
    to_tensorboard,
)
from sawtooth.ingest.capture.command.scalars import ScalarWriter, crc32c
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.sampler.step_rate import StepRateReader

MS = 1_000_000


def test_the_step_rate_by_hand() -> None:
    # Of 20 steps, 18 take 10 ms, one 20 ms and one 30 ms. The 19th quickest is the 95th percentile. The profiled step and the gap after it do
    # not count.
    ends, end_ns = [], 0
    for step in range(21):
        end_ns += {5: 20, 9: 30}.get(step, 10) * MS
        ends.append((step, end_ns, "train"))
    step_rate = step_rate_from([*ends, (21, end_ns + 900 * MS, "profile"), (22, end_ns + 1900 * MS, "train")])
    assert step_rate is not None and (step_rate.step, step_rate.p50_ms, step_rate.p95_ms) == (22, 10.0, 20.0)
    assert step_rate.per_s == pytest.approx(1e3 * 20 / 230)
    assert step_rate_from(ends[:4]) is None


def test_lines_and_scalars_have_the_same_values() -> None:
    step_rate = StepRate(1240, 9.024, 9.65, 110.8)
    assert step_rate.line(64) == "sawtooth: step 1,240: median 9.024 ms, 95th percentile 9.65 ms, 7,091 samples/s"
    assert step_rate.line(None).endswith("111 steps/s")
    slow = StepRate(1240, 12_345.6, 15_000.0, 0.081)
    assert slow.line(200_000) == "sawtooth: step 1,240: median 12.35 s, 95th percentile 15 s, 16,200 samples/s"
    assert step_rate.scalars(64)["sawtooth/samples_per_s"] == pytest.approx(64 * 110.8)


class Clock:
    ns = 0

    def __call__(self) -> int:
        return self.ns


def marks(folder: Path, name: str, clock: Clock) -> MarkWriter:
    return MarkWriter(folder / f"marks-{name}.jsonl", wall_ns=clock, monotonic_ns=clock)


def test_a_growing_file_is_read_and_the_newest_steps_count(tmp_path: Path) -> None:
    clock = Clock()
    writer, tail = marks(tmp_path, "7", clock), MarksTail(tmp_path)
    assert tail.step_rate() is None
    for step in range(3 * MAX_REPORTED_STEPS):
        clock.ns += (50 if step < 2 * MAX_REPORTED_STEPS else 10) * MS
        writer.mark(step)
    writer.flush()
    first = tail.step_rate()
    assert first is not None and (first.step, first.p50_ms) == (3 * MAX_REPORTED_STEPS - 1, 10.0)
    assert tail.step_rate() is None, "there is no new step"
    with (tmp_path / "marks-7.jsonl").open("ab") as file:
        file.write(b'{"k": "mark", "i": 600, "w": 99')
    assert tail.step_rate() is not None, "an incomplete line is read when it is complete"
    with (tmp_path / "marks-7.jsonl").open("ab") as file:
        file.write(b'00000000000, "p": "train", "o": 0}\n')
    again = tail.step_rate()
    assert again is not None and again.step == 600


def test_marks_of_a_loop_that_become_those_of_its_optimizer_are_read(tmp_path: Path) -> None:
    """A training's provisional marks are removed when the optimizer steps."""
    writer, tail = marks(tmp_path, "7.sign", Clock()), MarksTail(tmp_path)
    writer.mark(0, now_ns=0)
    writer.close()
    assert len(tail.marks()) == 1
    (tmp_path / "marks-7.sign.jsonl").unlink()
    writer = marks(tmp_path, "7", Clock())
    for step in range(3):
        writer.mark(step, now_ns=step * 10**9)
    writer.close()
    assert [step for step, *_ in tail.marks()] == [0, 1, 2]


def test_the_optimizer_with_fewer_steps_defines_the_step_rate(tmp_path: Path) -> None:
    clock = Clock()
    writer, tail = marks(tmp_path, "7", clock), MarksTail(tmp_path)
    for step in range(20):
        for part in range(2):
            clock.ns += 5 * MS
            writer.mark(2 * step + part, optimizer=0)
        writer.mark(step, optimizer=1)
    writer.flush()
    step_rate = tail.step_rate()
    assert step_rate is not None and (step_rate.step, step_rate.p50_ms) == (19, 10.0)


def test_an_ended_phase_is_not_shown_forever(tmp_path: Path) -> None:
    clock = Clock()
    writer, tail = marks(tmp_path, "7", clock), MarksTail(tmp_path)
    for optimizer, steps in ((0, 6), (1, 100)):
        for step in range(steps):
            clock.ns += 10 * MS
            writer.mark(step, optimizer=optimizer)
    writer.flush()
    step_rate = tail.step_rate()
    assert step_rate is not None and step_rate.step == 99


def test_progress_shows_the_last_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressReporter(tmp_path, [on_stderr(None, 60)]):
        pass
    assert capsys.readouterr().err == ""
    clock = Clock()
    board = ScalarWriter(tmp_path / "tb")
    sinks = [on_stderr(8, 60), to_tensorboard(board, 8, 60), to_sampler(tmp_path / "pace.json", 8, 2e12, 60)]
    with ProgressReporter(tmp_path, sinks):
        writer = marks(tmp_path, "7", clock)
        for step in range(20):
            clock.ns += 10 * MS
            writer.mark(step)
        writer.close()
    board.close()
    assert capsys.readouterr().err == "sawtooth: step 19: median 10 ms, 95th percentile 10 ms, 800 samples/s\n"
    (events,) = (tmp_path / "tb").iterdir()
    assert b"sawtooth/samples_per_s" in events.read_bytes()
    reader = StepRateReader(tmp_path / "pace.json")
    assert reader.read(0) == {"step": 19, "p50_ms": 10, "p95_ms": 10, "per_s": 100, "samples": 8, "flops": 2e12}
    assert reader.read(1) is None and reader.read(2 * 10**9) is None, "the file is read once a second, and only if it changed"


def test_each_sink_gets_new_values_at_its_own_interval(tmp_path: Path) -> None:
    clock, often, seldom = Clock(), list[int](), list[int]()
    writer = marks(tmp_path, "7", clock)
    sinks = [
        ProgressSink(1, lambda step_rate: often.append(step_rate.step)),
        ProgressSink(3, lambda step_rate: seldom.append(step_rate.step)),
    ]
    progress = ProgressReporter(tmp_path, sinks, clock=lambda: 0.0)
    for second in range(1, 5):
        for step in range(10):
            clock.ns += 100 * MS
            writer.mark(10 * (second - 1) + step)
        writer.flush()
        progress.report(second)
    progress.report(5)
    assert often == [9, 19, 29, 39], "there is no new step in the fifth second"
    assert seldom == [29], "the next report is in the sixth second"
    progress.report(6)
    assert seldom == [29, 39], "the sixth second reports the steps after the third"


@pytest.mark.parametrize("content", ["", "[1]", '{"step": "x"}', '{"p50_ms": NaN}', "{}", '{"step": 1'])
def test_an_invalid_step_rate_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "pace.json").write_text(content)
    assert StepRateReader(tmp_path / "pace.json").read(0) is None
    assert StepRateReader(tmp_path / "none.json").read(0) is None


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # The polynomial's check value.
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_scalars_are_records_that_tensorboard_reads(tmp_path: Path) -> None:
    writer = ScalarWriter(tmp_path / "logs", wall_s=lambda: 1.5)
    writer.write(300, {"a": 2.0})
    writer.close()
    data, events = writer.path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(data[12 : 12 + length])
        crc = crc32c(events[-1])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (masked,)
        data = data[16 + length :]
    wall = b"\x09" + struct.pack("<d", 1.5)
    assert events[0] == wall + b"\x1a\x0dbrain.Event:2"
    # Step 300 is 0xAC 0x02. A summary of 10 bytes follows, with a value of 8 bytes, which has the tag "a" and the float 2.0.
    assert events[1] == wall + b"\x10\xac\x02" + b"\x2a\x0a" + b"\x0a\x08" + b"\x0a\x01a" + b"\x15" + struct.pack("<f", 2.0)
