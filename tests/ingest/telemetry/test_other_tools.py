"""Tests of telemetry of AMD's and Intel's tools, of scripts and of spreadsheets."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.errors import SourceError
from tests.support.ingested_telemetry import START, ingested, read
from tests.support.paths import TELEMETRY

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "what", "expected", "clock"),
    [
        (
            "amd_smi_metric.csv",
            "device, (time_ns - 1790496000000000000) // 1000000000, util_pct, power_w, clock_sm_mhz, clock_sm_max_mhz, temp_c, mem_used_bytes",
            [
                (0, 0, 97, 700, 2050, 2400, 71, 150000 * MIB),
                (0, 1, 96, 705, 2050, 2400, 72, 150010 * MIB),
                (1, 0, 12, 210, 1200, 2400, 45, 1000 * MIB),
                (1, 1, 11, 209, 1200, 2400, 45, 1000 * MIB),
            ],
            "unix",
        ),
        (
            "amd_smi_metric.json",
            "device, (time_ns - 1790496000000000000) // 1000000000, util_pct, mem_busy_pct, power_w, clock_sm_mhz, temp_c, mem_temp_c, mem_used_bytes",
            [(0, 0, 97, 30, 700, 2100, 71, 64, 150000 * MIB), (0, 1, 96, 31, 705, 2090, 72, 64, 150010 * MIB)],
            "unix",
        ),
        (
            "rocm_smi.csv",
            "device, time_ns // 1000000000, util_pct, power_w, mem_used_bytes",
            [
                (0, 0, 97, 700, 164913322393),
                (0, 1, 98, 702, 164913322393),
                (1, 0, 3, 141, 298844160),
                (1, 1, 2, 140, 298844160),
            ],
            "unknown",
        ),
        (
            "rocm_smi.json",
            "device, time_ns // 1000000000, util_pct, power_w, temp_c",
            [(0, 0, 97, 300, 61), (0, 1, 98, 301, 62)],
            "unknown",
        ),
        (
            "nvitop.csv",
            "device, time_ns, util_pct, mem_used_bytes",
            [
                (3, START + 2_500_000_000, 94.5, int(61236.5 * MIB)),
                (3, START + 4_500_000_000, 95.5, 61240 * MIB),
                (5, START + 2_500_000_000, 12, None),
                (5, START + 4_500_000_000, 13, None),
            ],
            "unix",
        ),
        (
            "gpustat.json",
            "device, time_ns - 1790496000000000000, util_pct, power_w, power_limit_w, mem_used_bytes, process_count",
            [(0, 100_000_000, 97, 640, 700, 61000 * MIB, 1), (0, 1_100_000_000, 96, 641, 700, 61010 * MIB, 0)],
            "local",
        ),
        (
            "dcgm_exporter.txt",
            "device, time_ns // 1000000000, util_pct, dram_active_pct",
            [(0, 0, 98, 41), (0, 30, 96, None), (1, 0, 97, None), (1, 30, 95, None)],
            "unknown",
        ),
        (
            "tegrastats.txt",
            "time_ns // 1000000000 - 1773241980, util_pct, clock_sm_mhz, temp_c, power_w, mem_used_bytes",  # 2026-03-11 15:13
            [(0, 45, 1300, 48.2, 3.176, 5848 * MIB), (1, 99, 1300, 48.7, 9.176, 5850 * MIB)],
            "local",
        ),
        (
            "xpu_smi.csv",
            "time_ns, util_pct, power_w, clock_sm_mhz, mem_used_bytes",
            [(86_399_500_000_000, None, 271.1, 1600, 2048 * MIB), (86_400_500_000_000, 87.5, 271.3, 1600, 2048 * MIB)],
            "unknown",
        ),
        ("plain.csv", "time_ns, util_pct", [(START, 95), (START + 10**9, 97)], "unix"),
        (
            "long.csv",
            "device, time_ns // 1000000 - 1790496000000, util_pct, power_w, clock_event_mask",
            [(0, 956, 97, 71.2, 4), (0, 1956, 96, None, None), (1, 979, 12, 71.78, None)],
            "unix",
        ),
    ],
)
def test_a_tool_is_recognised_by_its_names(tmp_path: Path, name: str, what: str, expected: list[Any], clock: str) -> None:
    con = ingested(TELEMETRY / name, tmp_path)
    found = con.execute(f"SELECT {what} FROM samples ORDER BY device, time_ns").fetchall()
    assert [tuple(map(pytest.approx, row)) if None not in row else row for row in expected] == found
    assert con.execute("SELECT clock FROM recording").fetchall() == [(clock,)]


HEADER = "timestamp, index, utilization.gpu [%]\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_text_of_powershell_and_excel(tmp_path: Path, encoding: str) -> None:
    text = "timestamp;index;utilization.gpu [%];power.draw [W]\r\n27.09.2026 08:00:00;0;95 %;300,25 W\r\n"
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    found = read(mark + text.encode(encoding), tmp_path, "time_ns, util_pct, power_w")
    assert found == [(START, 95, 300.25)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time,gpu0_util,gpu1_util\n1790496000,10,20\n1790496001,11,21\n", [10, 11, 20, 21]),
        ("Date,Time,GPU Usage (%)\n2026/09/27,08:00:00,33\n2026/09/27,08:00:01,34\n", [33, 34]),
        ("timestamp\tgpu_util_pct\n1790496000\t44\n1790496001\t45\n", [44, 45]),
        ("timestamp,utilization\n1790496000,0.97\n1790496001,0.5\n", [97, 50]),  # ratios
        # index is the GPU's number inside a container, and id counts the rows
        (
            "id,timestamp,gpu,index,util\n1,1790496000,0,0,10\n2,1790496000,1,0,20\n3,1790496001,0,0,11\n4,1790496001,1,0,21\n",
            [10, 11, 20, 21],
        ),
        ("timestamp,gpu,index,util\n1790496000,A100,0,10\n1790496000,A100,1,20\n", [10, 20]),  # gpu is the model.
        ("elapsed_s,serial,timestamp,index,util\n0,[N/A],1790496000,0,10\n0,[N/A],1790496000,1,20\n", [10, 20]),
        # Grafana writes a column per series, whose title has the labels.
        (
            '"Time","DCGM_FI_DEV_GPU_UTIL{gpu=""1"", Hostname=""n""}","DCGM_FI_DEV_GPU_UTIL{gpu=""3""}"\n2026-09-27 08:00:00,7,8\n',
            [7, 8],
        ),
        # GPU-Z writes in Windows' code page.
        (
            "  Date , GPU Clock [MHz] , GPU Temperature [\xb0C] , GPU Load [%] ,\n2026-09-27 08:00:00 , 1410.0 , 60.0 , 33 ,\n",
            [33],
        ),
        ("epoch_ms,gpu_util\n1790496000000,33\n", [33]),
        ("Zeitstempel,gpu_util\n2026-09-27 08:00:00,33\n2026-09-27 08:00:01,34\n", [33, 34]),
        (
            "_time,_field,_value,index\n2026-09-27T08:00:00Z,utilization_gpu,7,0\n2026-09-27T08:00:01Z,utilization_gpu,8,0\n",
            [7, 8],
        ),
    ],
)
def test_tables_of_scripts(tmp_path: Path, text: str, expected: list[float]) -> None:
    found = read(text.encode("latin-1"), tmp_path, "util_pct, time_ns")
    assert [util for util, _ in found] == pytest.approx(expected) and found[0][1] in (START, 0)


def test_an_unknown_table_is_refused_with_names_to_change(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("wall clock,auslastung,gpu power draw now\n1790496000,5,300\n1790496001,6,310\n1790496002,6,310\n")
    with pytest.raises(SourceError) as refusal:
        ingested(path, tmp_path)
    answer = str(refusal.value)
    assert "'wall clock', 'auslastung', 'gpu power draw now'" in answer and "to power.draw [W]" in answer
    assert "timestamp" in answer and "no samples" not in answer


def test_a_column_without_any_value_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("timestamp, index, utilization.gpu [%], power.draw [W]\n" + "2026/09/27 08:00:00.000, 0, [N/A], 300 W\n")
    (noted,) = ingested(path, tmp_path).execute("SELECT sentence FROM diagnostics WHERE key = 'column_blank'").fetchall()
    assert noted[0].startswith(
        "No row has a value of 'utilization.gpu [%]'. nvidia-smi shows no utilization for a GPU with MIG"
    )


def test_a_gpu_with_mig_instances_has_no_utilization_of_its_own(tmp_path: Path) -> None:
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 0 {at}\nDCGM_FI_DEV_POWER_USAGE{{gpu="0"}} 300 {at}\n'
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",GPU_I_ID="1"}} 0.9 {at}'
        for at in range(1790496000000, 1790496090000, 30_000)
    ]
    assert read("\n".join(lines), tmp_path, "util_pct, power_w") == [(None, 300)] * 3


def test_a_long_table_of_unknown_quantities_has_advice_to_pivot(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"names 'loss', 'lr'\. None of them is a known GPU quantity") as refusal:
        read("ts,key,value\n1790496000,loss,5\n1790496001,lr,0.1\n", tmp_path)
    assert "df.pivot_table(index=['ts'], columns='key', values='value')" in str(refusal.value)


def test_rows_that_cannot_be_read_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "yesterday, 0, 5 %\nyesterday, 0, 6 %\n")
    with pytest.raises(SourceError, match=r"None of the 2 rows below the header can be read. The first is 'yesterday, 0, 5 %'"):
        ingested(path, tmp_path)


def test_the_boxed_tables_of_nvidia_smi_are_samples(tmp_path: Path) -> None:
    rows = ingested(TELEMETRY / "nvidia_smi_tables.txt", tmp_path).execute(
        "SELECT device, time_ns, util_pct, power_w, power_limit_w, temp_c, mem_used_bytes // 1048576 FROM samples ORDER BY device, time_ns"
    )
    assert rows.fetchall() == [
        (0, START, 99, 652, 700, 61, 70112),
        (0, START + 5 * 10**9, 97, 655, 700, 62, 70112),
        (1, START, 0, 71, 700, 35, 4),
        (1, START + 5 * 10**9, None, None, None, 35, 4),
    ]


def test_a_line_break_inside_a_quoted_cell_does_not_end_a_row(tmp_path: Path) -> None:
    text = 'elapsed_sec,gpu_util_pct,power_w\n0.25,20,"75.5\n0"\n0.5,21,"76\n0"\n0.75,22,"77\n1.0,23,78\n'
    assert read(text, tmp_path, "time_ns, util_pct, power_w") == [
        (250_000_000, 20, 75.5),
        (500_000_000, 21, 76),
        (750_000_000, 22, 77),
        (1_000_000_000, 23, 78),
    ]


def test_a_table_without_a_header_is_refused_with_suggested_names(tmp_path: Path) -> None:
    row = "2026/09/27 08:00:0{}.000, 95 %, 10 %, 70000 MiB, 81559 MiB, 61, 652.10 W"
    with pytest.raises(SourceError) as refused:
        read("\n".join(row.format(second) for second in range(5)), tmp_path)
    answer = str(refused.value)
    assert "has no header" in answer and "record without noheader" in answer
    assert (
        "timestamp, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], ?, power.draw [W]"
        in answer
    )
