"""Tests of the times of telemetry tables, with forms of dates, clocks and repeated timestamps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.ingested_telemetry import START, ingested, read

HEADER = "timestamp, index, utilization.gpu [%]\n"
NOON = 1773230400 * 10**9  # 2026-03-11 12:00:00 UTC


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (["2026-03-11T20:00:00+08:00", "2026-03-11T20:00:01+08:00"], [NOON, NOON + 10**9]),
        (["2026-03-11T12:00:00Z", "2026-03-11 12:00:01.250Z"], [NOON, NOON + 1_250_000_000]),
        (["03-11-2026 12:00:00", "03-11-2026 12:00:01"], [NOON, NOON + 10**9]),
        (["11.03.2026 12:00:00", "11.03.2026 12:00:01"], [NOON, NOON + 10**9]),
        (["03/11/2026 11:59:59 AM", "03/11/2026 12:00:00 PM"], [NOON - 10**9, NOON]),
        (["11/03/2026 12:00:00", "13/03/2026 12:00:00"], [NOON, NOON + 2 * 86_400 * 10**9]),  # There is no month 13.
        (["03-11-2026 12:00:00", "03-13-2026 12:00:00"], [NOON, NOON + 2 * 86_400 * 10**9]),
        (
            ["11-03-2026 23:59:59", "12-03-2026 00:00:00"],
            [NOON + 43_199 * 10**9, NOON + 43_200 * 10**9],
        ),  # The next day follows, and not the next month.
        (["1773230400", "1773230401"], [NOON, NOON + 10**9]),
        (["1773230400000", "1773230401500"], [NOON, NOON + 1_500_000_000]),
        (["Wed Mar 11 12:00:00 2026", "Wed Mar 11 12:00:01 2026"], [NOON, NOON + 10**9]),
    ],
)
def test_a_date_in_another_form(tmp_path: Path, stamps: list[str], expected: list[int]) -> None:
    found = read(HEADER + "".join(f"{stamp}, 0, 5 %\n" for stamp in stamps), tmp_path)
    assert [time_ns for time_ns, _ in found] == expected


def test_a_date_that_may_be_two_days_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "03-11-2026 12:00:00, 0, 5 %\n03-11-2026 12:00:01, 0, 6 %\n")
    diagnostics = dict(ingested(path, tmp_path).execute("SELECT key, sentence FROM diagnostics").fetchall())
    assert "03-11-2026" in diagnostics["date_order"] and "month first" in diagnostics["date_order"]


def stamp_at(seconds: float) -> str:
    return f"2026/09/27 {8 + int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}.{round(seconds % 1 * 1000):03}"


def intervals(tmp_path: Path, seconds: list[float], devices: int = 1) -> list[float]:
    lines = [f"{stamp_at(s)}, {d}, {i % 100} %\n" for i, s in enumerate(seconds) for d in range(devices)]
    found = read(HEADER + "".join(lines), tmp_path, "device, time_ns")
    times = [time_ns for device, time_ns in found if device == 0]
    assert len(found) == devices * len(seconds)
    return [(b - a) / 1e9 for a, b in itertools.pairwise(times)]


def test_times_after_a_clock_set_back_continue(tmp_path: Path) -> None:
    """After 20 s the clock is set back by 12 s. The later samples still follow the earlier ones."""
    assert intervals(tmp_path, [*range(100, 120), *range(108, 140)], devices=2) == [1.0] * 51


def test_swapped_lines_are_sorted(tmp_path: Path) -> None:
    assert intervals(tmp_path, [1, 2, 4, 3, 5, 6]) == [1.0] * 5


def test_an_earlier_log_after_a_later_one_stays_earlier(tmp_path: Path) -> None:
    assert intervals(tmp_path, [*range(500, 510), *range(100, 110)]) == [1.0] * 9 + [391.0] + [1.0] * 9


def test_samples_that_share_a_timestamp_are_spread_over_its_second(tmp_path: Path) -> None:
    assert intervals(tmp_path, [s for s in range(10) for _ in range(5)]) == pytest.approx([0.2] * 49)


@pytest.mark.parametrize(
    "stamp",
    ["2026-09-27T10:00:0{},250000000+02:00", "2026-09-27 08:00:0{},250"],
    ids=["date --iso-8601=ns", "logging"],
)
def test_a_decimal_comma_in_the_time_does_not_split_a_cell(tmp_path: Path, stamp: str) -> None:
    rows = [f"{stamp.format(second)},{90 + second}, 40, 300.5" for second in range(2)]
    text = "\n".join(["timestamp,utilization.gpu,utilization.memory,power.draw", *rows])
    assert read(text, tmp_path, "time_ns, util_pct, power_w") == [
        (START + 250_000_000, 90, 300.5),
        (START + 1_250_000_000, 91, 300.5),
    ]
