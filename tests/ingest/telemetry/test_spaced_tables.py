"""Tests of telemetry tables with spaces between columns, and of large answers.

The tools are amd-smi monitor and npu-smi. The expected values are read from the text.
"""

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
