"""Tests of telemetry tables with spaces between columns, as amd-smi monitor and npu-smi print them."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

MIB = 1 << 20
AMD = """GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  MEM_CLOCK  VRAM_USED  VRAM_TOTAL
  0    0   138 W    43 °C    N/A   132 MHz   97 %    3 %    900 MHz     2.5 GB    191.5 GB
  1    0   700 W    71 °C   60 °C  2100 MHz  96 %   30 %   1300 MHz   150.0 GB    191.5 GB
"""
AMD_OLD = """AMDSMI Tool: 24.6.2 | ROCm version: 6.2.2
GPU  POWER  GPU_TEMP  MEM_TEMP  GFX_UTIL  GFX_CLOCK  MEM_UTIL  MEM_CLOCK     THROTTLE  VRAM_USED  VRAM_TOTAL   PCIE_BW

  0   11 W     43 °C     58 °C      84 %   1814 MHz       1 %     96 MHz  UNTHROTTLED     227 MB    25476 MB  N/A Mb/s
"""
AMD_NEW = """GPU  XCP  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  ENC%      VRAM_USAGE
  0    0   11 W    750 W   43 °C   58 °C  1814 MHz   84 %    1 %   N/A    34.5/192.0 GB
"""
NPU = """NpuID(Idx)  ChipId(Idx) Pwr(W)  Temp(C)  AI Core(%)  AI Cpu(%)  Ctrl Cpu(%)  Memory(%)  Memory BW(%)
0           0           290.4   51       95          0          16           62         70
0           1           NA      52       94          0          16           62         NA
"""
DMON = """# gpu, pwr, gtemp, sm, mem
# Idx, W, C, %, %
0, 300, 60, 95, 40
1, 301, -, 90, 41
"""


def rows(text: str, tmp_path: Path, what: str, order: str = "ORDER BY time_ns, device") -> list[tuple[object, ...]]:
    path, folder = tmp_path / "log.txt", DataFolder(tmp_path / "data")
    path.write_text(text)
    file = folder.recording_file(ingest_file(path, folder).id)
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(f"SELECT {what} FROM samples {order}").fetchall()


def test_amd_smi_monitor_as_a_table_with_units_in_its_cells(tmp_path: Path) -> None:
    what = "device, util_pct, power_w, temp_c, mem_temp_c, clock_sm_mhz, mem_used_bytes, mem_total_bytes, time_ns"
    total = int(191.5 * 1024) * MIB
    assert rows(AMD * 2, tmp_path, what) == [
        (device, *values, second * 10**9)
        for second in (0, 1)
        for device, values in (
            (0, (97, 138, 43, None, 132, 2560 * MIB, total)),
            (1, (96, 700, 71, 60, 2100, 153600 * MIB, total)),
        )
    ]


@pytest.mark.parametrize(("text", "limit", "memory"), [(AMD_OLD, None, (227, 25476)), (AMD_NEW, 750, (35328, 196608))])
def test_amd_smi_monitor_of_other_versions(tmp_path: Path, text: str, limit: int | None, memory: tuple[int, int]) -> None:
    what = "util_pct, mem_busy_pct, power_w, power_limit_w, temp_c, mem_temp_c, clock_sm_mhz, mem_used_bytes, mem_total_bytes"
    assert rows(text, tmp_path, what) == [(84, 1, 11, limit, 43, 58, 1814, *(amount * MIB for amount in memory))]


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-05-04T10:00:01.123456789Z stdout F ", "2026-05-04T10:00:01.123456Z ", "[2026-05-04 10:00:01] ", "May  4 10:00:01 ",
        "May 04 10:00:01 node17 monitor[4711]: ", "3: ", "monitor-1  | ", "[pod/monitor-abc/main] ",
        "monitor-7d9f6c-abcde main ",
    ],
)  # fmt: skip
def test_lines_with_the_prefix_of_a_log_collector(tmp_path: Path, prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in AMD.splitlines())
    assert rows(text, tmp_path, "device, util_pct, power_w") == [(0, 97, 138), (1, 96, 700)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "".join(f"{task}: {line}\n" for task in (0, 1) for line in AMD.splitlines()),
            r"come from several places \('0' and '1'\)",
        ),
        ("_runtime,a - system/gpu.0.gpu,b - system/gpu.0.gpu\n1,90,10\n", r"columns of 2 runs \('a' and 'b'\)"),
    ],
)
def test_gpus_of_two_sources_are_not_mixed(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        rows(text, tmp_path, "device")


def test_a_prefix_before_nvidia_smi_csv_is_left_out(tmp_path: Path) -> None:
    lines = "timestamp, index, utilization.gpu [%]\n2026/05/04 10:00:01.500, 1, 95 %\n"
    text = "".join(f"monitor-1  | {line}\n" for line in lines.splitlines())
    assert rows(text, tmp_path, "device, util_pct") == [(1, 95)]


def test_npu_smi_watch_with_two_chips_of_one_card(tmp_path: Path) -> None:
    _, header, *of_cards = NPU.partition("\n")
    again = "".join(of_cards)
    assert header == "\n"
    assert rows(NPU + again, tmp_path, "device, util_pct, power_w, temp_c, mem_busy_pct") == [
        (0, 95, 290.4, 51, 70), (1, 94, None, 52, None), (0, 95, 290.4, 51, 70), (1, 94, None, 52, None),
    ]  # fmt: skip


def test_the_overview_of_npu_smi_is_refused_by_its_name(tmp_path: Path) -> None:
    box = "+------+\n| npu-smi 24.1.rc2    Version: 24.1.rc2 |\n+------+\n| NPU   Name | Health | Power(W) |\n"
    with pytest.raises(SourceError, match="npu-smi info watch"):
        rows(box, tmp_path, "*")


def test_dmon_with_commas_keeps_all_columns(tmp_path: Path) -> None:
    assert rows(DMON, tmp_path, "device, util_pct, power_w, temp_c, mem_busy_pct") == [
        (0, 95, 300, 60, 40),
        (1, 90, 301, None, 41),
    ]


def test_a_prometheus_answer_of_1024_gpus_is_read(tmp_path: Path) -> None:
    series = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": f"h{n // 8}", "gpu": str(n % 8), "UUID": f"GPU-{n}"},
            "values": [[1790496000 + 10 * k, "95"] for k in range(3)],
        }
        for n in range(1024)
    ]
    answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})
    assert rows(answer, tmp_path, "count(*), count(DISTINCT device), avg(util_pct)", "").pop() == (3072, 1024, 95)
