"""Tests of telemetry that tools such as gpustat and rocm-smi print repeatedly for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import TELEMETRY

MIB = 1 << 20
NOON = 1671451200 * 10**9  # 2022-12-19 12:00:00
PMON = """# gpu        pid  type    sm   mem   enc   dec    fb   command
# Idx          #   C/G     %     %     %     %    MB   name
    0      12345     C    45    20     -     -  8192   python
    0      12346     C    70    10     -     -  4096   python train.py
    1          -     -     -     -     -     -     -   -
    0      12345     C    50    22     -     -  8192   python
    0      12346     C     -     -     -     -  4096   python train.py
    1          -     -     -     -     -     -     -   -
"""
BOXED = """Mon Dec 19 12:00:{:02} 2022
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 530.41.03    Driver Version: 530.41.03    CUDA Version: 12.1     |
|   0  NVIDIA GeForce RTX 3060 L...    Off| 00000000:01:00.0 Off |        N/A |
| N/A   57C    P0             {:>4} /  N/A|      6MiB /  6144MiB |     {:>2}%      Default |
"""
NVITOP = """Mon Dec 19 12:00:{:02} 2022
╒═══════════════════════════════╤══════════════════════╤══════════════════════╕
│ NVITOP 1.3.2      Driver Version: 535.216.01      CUDA Driver Version: 12.2 │
│   0  ..a V100-DGXS-32GB  On   │ 00000000:07:00.0 Off │                    0 │
│ N/A   53C    P0    80W / 300W │   9.50MiB / 32.00GiB │     {:>2}%   E. Process │ MEM: ▏ 0.0% │
"""
DMON = "# gpu  pwr  sm\n# Idx  W  %\n  0  300  {}\n"
SMI_EXPORTER = """nvidia_smi_gpu_info{uuid="df6e",name="NVIDIA GeForce RTX 2080"} 1
nvidia_smi_utilization_gpu_ratio{uuid="df6e"} 0.%d
nvidia_smi_power_draw_watts{uuid="df6e"} 28.5
nvidia_smi_clocks_current_sm_clock_hz{uuid="df6e"} 1.5e+09
"""
QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Mon Dec 19 12:00:{:02} 2022
Driver Version                            : 537.13
Attached GPUs                             : 1
GPU 00000000:08:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
    GPU UUID                              : GPU-e1f55e56
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Throttle Reasons
        Idle                              : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 9 us
    FB Memory Usage
        Total                             : 24564 MiB
        Used                              : 1583 MiB
    Utilization
        Gpu                               : 41 %
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 1
            DRAM Uncorrectable            : {}
        Aggregate
            DRAM Uncorrectable            : 9
    GPU Power Readings
        Power Draw                        : 29.50 W
        Current Power Limit               : 400.00 W
    Clocks
        SM                                : 2520 MHz
    Max Clocks
        SM                                : 3105 MHz
"""


def rows(text: str, tmp_path: Path, what: str) -> list[tuple[Any, ...]]:
    path, folder = tmp_path / "log.txt", DataFolder(tmp_path / "data")
    path.write_text(text)
    file = folder.recording_file(ingest_file(path, folder).id)
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(
            f"SELECT device, (time_ns - {NOON}) // 1000000000, {what} FROM samples ORDER BY time_ns, device"
        ).fetchall()


def test_pmon_adds_the_processes_of_a_gpu(tmp_path: Path) -> None:
    samples = rows(PMON, tmp_path, "util_pct, mem_used_bytes, process_count")
    assert [row[:1] + row[2:] for row in samples] == [
        (0, 100, 12288 * MIB, 2),
        (1, 0, 0, 0),
        (0, 50, 12288 * MIB, 2),
        (1, 0, 0, 0),
    ]


def test_gpustat_prints_samples_with_dates_and_colours(tmp_path: Path) -> None:
    assert rows((TELEMETRY / "gpustat.txt").read_text(), tmp_path, "util_pct, temp_c, power_w, mem_used_bytes") == [
        (0, 0, 68, 60, None, 3712 * MIB),
        (1, 0, 98, 71, 280, 40000 * MIB),
        (0, 60, 57, 68, None, 3712 * MIB),
    ]


def test_rocm_smi_overviews_of_two_forms(tmp_path: Path) -> None:
    assert rows(
        (TELEMETRY / "rocm_smi_tables.txt").read_text(), tmp_path, "temp_c, power_w, clock_sm_mhz, power_limit_w, util_pct"
    ) == [
        (0, 0, 42, 128, 1650, 500, 100),
        (1, 0, 43, None, 800, 0, 9),
        (0, 5, 35, 133, 131, 750, 7),
    ]


def test_a_box_without_a_space_before_its_edge_is_read(tmp_path: Path) -> None:
    text = BOXED.format(0, "N/A", 3) + BOXED.format(2, "21W", 55)
    assert rows(text, tmp_path, "util_pct, power_w, power_limit_w, mem_used_bytes") == [
        (0, 0, 3, None, None, 6 * MIB),
        (0, 2, 55, 21, None, 6 * MIB),
    ]


def test_the_whole_state_of_nvidia_smi_q(tmp_path: Path) -> None:
    what = "util_pct, power_w, power_limit_w, clock_event_mask, clock_sm_mhz, clock_sm_max_mhz, pcie_gen, pcie_width, pcie_max_width, ecc_uncorrected_count"
    assert rows(QUERY.format(0, 0) + QUERY.format(5, 2), tmp_path, what) == [
        (0, 0, 41, 29.5, 400, 0x40, 2520, 3105, 1, 8, 16, 1),
        (0, 5, 41, 29.5, 400, 0x40, 2520, 3105, 1, 8, 16, 3),
    ]


def test_nvidia_smi_q_as_xml_gives_the_same_samples(tmp_path: Path) -> None:
    assert rows(
        (TELEMETRY / "nvidia_smi_q.xml").read_text(), tmp_path, "util_pct, power_w, clock_event_mask, mem_busy_pct"
    ) == [
        (0, 0, 70, 30.92, 4, None),
        (1, 0, None, None, None, 3),
        (0, 3, 80, 30.92, 4, None),
        (1, 3, None, None, None, 3),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (QUERY.format(0, 0), "of one moment"),
        ("used_gpu_memory [MiB]\n1 MiB\n69 MiB\n74 MiB\n", "no column of times"),
        ("2 %, 588 MiB\n" * 4, "no column of times"),
        ("timestamp,GPU0,GPU1\n1763638585.2,199.9,256.5\n1763638586.4,196.3,261.4\n", "'GPU0' to GPU 0 power.draw"),
        ("POM_5V_GPU (mW),POM_5V_CPU (mW)\n920,119\n1537,472\n1540,480\n", "'POM_5V_GPU (mW)' to power.draw [mW]"),
        ("Time,n1 - GPU 0,n1 - GPU 1\n1763638585.2,95,12\n1763638586.4,96,13\n", "'n1 - GPU 1' to GPU 1 utilization.gpu [%]"),
        (
            "time,gpu_index,gpu_util_percent\n2026-05-06 10:06:45,2026/05/06 10:06:45.521, 0, 3\n",
            "has 3 titles, but this row has 4 cells",
        ),
        ("[100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n", "a log of the kernel with the GPU errors Xid 79"),
        ("\x1b[HEvery 2.0s: nvidia-smi\r\x1b[3;1H\n", "human-readable output of nvidia-smi or nvitop"),
        (NVITOP.format(0, 97), "human-readable output of nvidia-smi or nvitop"),
        (
            '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"gpu":"0"},"values":[[1790496000,"95"]]}]}}',
            "Query a metric by itself",
        ),
        ("Engine,TotalTime(S),Energy(J)\nA,5.4,64\nB,1.3,70\nC,8.0,71\n", "needs a column timestamp"),
        ("2025-06-09 23:21:02,419 - INFO - waiting\n2025-06-09 23:21:03,461 - INFO - GPU #0 free\n", "neither a torch"),
    ],
)
def test_a_file_without_a_series_is_refused_with_missing_parts(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r".") as refusal:
        rows(text, tmp_path, "util_pct")
    assert says in str(refusal.value)


def test_times_since_the_start_have_the_unit_of_their_header(tmp_path: Path) -> None:
    text = "timestamp_ms,gpu_usage_percent\n0,10\n2000,20\n90000,30\n"
    assert [at + NOON // 10**9 for _, at, _ in rows(text, tmp_path, "util_pct")] == [0, 2, 90]


@pytest.mark.parametrize(
    ("text", "what", "values"),
    [
        (NVITOP.format(0, 97) + NVITOP.format(4, 12), "power_w, mem_used_bytes", (80, int(9.5 * MIB))),
        ("".join(f"2022-12-19T12:00:{s:02}Z stdout F {line}\n" for s, util in ((0, 97), (4, 12)) for line in DMON.format(util).splitlines()[2 * (s > 0):]), "power_w", (300,)),
        ("#Time  gpu  pwr  sm\n12:00:00  0  300  97\n12:00:04  0  300  12\n", "power_w", (300,)),
        ("Mon Dec 19 12:00:00 UTC 2022\n#Entity GPUTL POWER\nGPU 0 97 300\n==== Mon Dec 19 12:00:04 UTC 2022 ====\nGPU 0 12 300\n", "power_w", (300,)),
        ("2022-12-19 12:00:00\n" + SMI_EXPORTER % 97 + "2022-12-19 12:00:04\n" + SMI_EXPORTER % 12, "power_w, clock_sm_mhz", (28.5, 1500)),
        ((TELEMETRY / "jtop.csv").read_text(), "power_w, temp_c", (3.176, 48.5)),
    ],
    ids=["nvitop", "prefix", "dmon -o T", "dates before dcgmi", "nvidia_gpu_exporter", "jtop"],
)  # fmt: skip
def test_times_and_values_of_more_tools(text: str, what: str, values: tuple[float, ...], tmp_path: Path) -> None:
    first, second = rows(text, tmp_path, f"util_pct, {what}")
    assert (first[2:], second[2:]) == ((97, *values), (12, *values))
    assert second[1] - first[1] == 4 and first[1] in (0, 43200 - NOON // 10**9)
