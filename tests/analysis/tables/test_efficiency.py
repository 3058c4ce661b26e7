"""Tests of efficiency tables from a trace file, by hand."""

from __future__ import annotations

import pytest

from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.efficiency import TENSOR_CORE_COLUMNS, roofline_table, tensor_core_table
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop

H200 = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(cutlass_80_simt_sgemm_64x64_8x5_tn_align1::Params)"


@pytest.fixture
def library(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    yield library
    library.close()


def opened(library, trace: ChromeTrace, path):
    file = trace.write(path / "t.json")
    run = ingest_into_runs(library.folder, [(file, file.name)]).runs[0]
    return library.open(run.recordings[0].id)


def fp32_beside_bf16() -> ChromeTrace:
    """Return steps with a bf16 product of 600 µs on tensor cores and an fp32 one of 200 µs without."""
    trace = matmul_loop(other_us=10)
    for k in range(4):
        at = k * 1000
        trace.op("aten::mm", at + 110, at + 160, [[512, 512], [512, 512]], ["float", "float"])
        trace.launch((at + 120, at + 130), (at + 700, at + 900), SIMT)
    return trace


def test_operators_that_miss_tensor_cores_come_first_with_the_reason(tmp_path, library):
    with opened(library, fp32_beside_bf16(), tmp_path) as recording:
        table = tensor_core_table(RankView(recording, 0, 3, H200))
    assert list(table.columns) == list(TENSOR_CORE_COLUMNS)
    first, second = table.iloc[0], table.iloc[1]
    assert (first["operator"], first["code"], first["without_ns"]) == ("aten::mm", "fp32", 3 * 200_000)  # Three counted steps.
    assert first["kernel"] == SIMT
    assert (second["with_ns"], second["without_ns"], second["code"]) == (3 * 600_000, 0, None)


def test_roofline_of_the_recording(tmp_path, library):
    with opened(library, fp32_beside_bf16(), tmp_path) as recording:
        table = roofline_table(RankView(recording, 0, 3, H200))
    bf16 = table[table["dtype"] == "bf16"].iloc[0]
    assert bf16["time_ns"] == 3 * 600_000
    assert bf16["flops"] == 3 * 2 * 1024**3
    assert bf16["attained_share"] == pytest.approx(2 * 1024**3 / 989.4e12 / 600e-6)
    assert set(table["dtype"]) == {"bf16", "fp32"}
    assert "aten::add" in set(table["name"])


def test_a_trace_without_products_has_an_empty_table(tmp_path, library):
    trace = ChromeTrace()
    trace.op("aten::add", 0, 30, [[4]], ["float"])
    trace.launch((5, 10), (20, 40), "void at::native::vectorized_elementwise_kernel<4, Add>(int)")
    with opened(library, trace, tmp_path) as recording:
        table = tensor_core_table(RankView(recording, 0, 3, H200))
    assert len(table) == 0
    assert list(table.columns) == list(TENSOR_CORE_COLUMNS)


def test_a_convolution_is_named_by_the_operator_with_its_flops(tmp_path, library):
    trace = ChromeTrace()
    dims, types = [[8, 16, 4, 4], [16, 16, 1, 1], [], [], [], [], [], [], []], ["float", "float", *[""] * 7]
    concrete = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    for at in trace.each_step(4, 1000.0, first=3):
        trace.op("aten::convolution", at + 10, at + 100, dims, types, **{"Concrete Inputs": concrete})
        trace.op("aten::cudnn_convolution", at + 20, at + 90, dims[:2], types[:2])
        trace.launch(
            (at + 30, at + 40),
            (at + 50, at + 90),
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tensor16x8x8",
        )
    with opened(library, trace, tmp_path) as recording:
        uses, roof = tensor_core_table(RankView(recording, 0, 3, H200)), roofline_table(RankView(recording, 0, 3, H200))
    assert uses["operator"].tolist() == ["aten::convolution"]
    assert roof["name"].tolist() == ["aten::convolution"]
    assert roof["dtype"].tolist() == ["tf32"]  # The child launches the kernel, which still counts for the operator.
    assert roof["time_ns"].tolist() == [3 * 40_000]


def test_copies_from_the_host_are_not_on_the_roofline(tmp_path, library):
    trace = matmul_loop()
    for k in range(4):
        at = k * 1000
        trace.op("aten::copy_", at + 110, at + 160, [[1000], [1000]], ["float", "float"])
        trace.launch(
            (at + 120, at + 130), (at + 800, at + 900), "Memcpy HtoD (Pinned -> Device)", category="gpu_memcpy", bytes=4000
        )
    with opened(library, trace, tmp_path) as recording:
        assert "aten::copy_" not in set(roofline_table(RankView(recording, 0, 3, H200))["name"])
