"""Tests of nvidia-smi's CSV and dmon output. The expected numbers were read from the excerpts by hand."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from sawtooth.ingest.errors import SourceError
from tests.support.ingested_telemetry import UTC_023847, diagnostics, ingested, rows
from tests.support.paths import TELEMETRY


def test_nvidia_smi_csv(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "query.csv", tmp_path)
    text = (TELEMETRY / "query.csv").read_text().splitlines()
    assert rows(con, "SELECT count(*) FROM samples") == [(len(text) - 1,)]
    # 2026/11/21 02:38:53.152, 0, GPU-c34…, NVIDIA H200, 0 %, 0 %, 0 MiB, 143771 MiB, 81.… W, 37, 345 MHz, 3201 MHz, 0x…1
    first = text[1].split(", ")
    (row,) = rows(
        con,
        "SELECT util_pct, mem_total_bytes, power_w, temp_c, clock_sm_mhz, clock_mem_mhz, clock_event_mask FROM samples LIMIT 1",
    )
    assert row[0] == float(first[4].removesuffix(" %"))
    assert row[1] == 143771 * 1048576
    assert row[2] == float(first[8].removesuffix(" W"))
    assert row[4] == float(first[10].removesuffix(" MHz"))
    assert rows(con, "SELECT uuid, name FROM devices") == [(first[2], "NVIDIA H200")]
    assert "no time zone" in diagnostics(con)["zone_unknown"][0]
    assert rows(con, "SELECT clock FROM recording") == [("local",)]  # The times are not taken as UTC.
    (seconds,) = re.findall(r"02:(\d\d):(\d\d)\.(\d\d\d)", text[1])
    assert rows(con, "SELECT min(time_ns) FROM samples") == [
        ((UTC_023847 - 38 * 60 - 47 + int(seconds[0]) * 60 + int(seconds[1])) * 10**9 + int(seconds[2]) * 10**6,)
    ]


def test_times_increase_in_the_hour_that_occurs_twice(tmp_path: Path) -> None:
    # Summer time ends in Berlin on 2026-10-25. A second after 02:59:59 (CEST), it is 02:00:00 (CET).
    path = tmp_path / "dst.csv"
    times = ["02:59:58.000", "02:59:59.000", "02:00:00.000", "02:00:01.000"]
    path.write_text("timestamp, utilization.gpu [%]\n" + "".join(f"2026/10/25 {t}, {i} %\n" for i, t in enumerate(times)))
    con = ingested(path, tmp_path)
    found = rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY time_ns")
    assert [b[0] - a[0] for a, b in itertools.pairwise(found)] == [10**9] * 3
    assert [u for _, u in found] == [0, 1, 2, 3]


def test_nvidia_smi_csv_without_units_in_another_order_and_language(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "\ufeffpower.draw.instant [W];index;utilization.gpu [%];timestamp;memory.used [MiB];power.draw [W]\r\n"
        "81,14;1;7;2026/11/21 02:38:47.500;100;80,0\r\n"
        "[N/A];1;[Not Supported];2026/11/21 02:38:48.500;100;80,0\r\n"
        "power.draw.instant [W];index;utilization.gpu [%];timestamp;memory.used [MiB];power.draw [W]\r\n"
        "81,20;0;8;2026/11/21 02:38:49.500;101;80,0\r\n"
        "81,20;0;8;2026/11/2"
    )
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT device, time_ns, util_pct, power_w, mem_used_bytes FROM samples ORDER BY time_ns") == [
        (1, UTC_023847 * 10**9 + 500_000_000, 7.0, 81.14, 100 * 1048576),
        (1, (UTC_023847 + 1) * 10**9 + 500_000_000, None, None, 100 * 1048576),
        (0, (UTC_023847 + 2) * 10**9 + 500_000_000, 8.0, 81.2, 101 * 1048576),
    ]
    assert diagnostics(con)["line_unreadable"][1] == 1


def test_a_csv_without_times_says_how_to_record_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("index, utilization.gpu [%]\n0, 5 %\n")
    with pytest.raises(SourceError, match="--query-gpu=timestamp"):
        ingested(path, tmp_path)


def test_a_csv_with_seconds_from_its_start_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,utilization.gpu [%]\n0,50\n1.5,60\n3,70\n")
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY time_ns") == [
        (0, 50.0), (1_500_000_000, 60.0), (3_000_000_000, 70.0)
    ]  # fmt: skip
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]


def test_dmon_with_dates(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "dmon_dated.txt", tmp_path)
    assert rows(
        con,
        "SELECT device, time_ns, util_pct, power_w, temp_c, mem_temp_c, clock_mem_mhz, clock_sm_mhz, mem_used_bytes FROM samples",
    ) == [(0, (UTC_023847 + s) * 10**9, 0.0, 81.0, 37.0, 39.0, 3201.0, 345.0, 0) for s in (-4, -3, -1, 0)]
    assert rows(con, "SELECT clock FROM recording") == [("local",)]


def test_dmon_with_gpm_and_without_dates(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "dmon_gpm.txt", tmp_path)
    assert rows(con, "SELECT time_ns, power_w, tensor_active_pct, gr_active_pct FROM samples") == [
        (0, 127.0, None, None),
        (10**9, 109.0, None, None),
        (2 * 10**9, 81.0, 0.0, 0.0),
    ]
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]
    assert '"assumed_interval_ns": 1000000000' in rows(con, "SELECT metadata FROM recording")[0][0]
