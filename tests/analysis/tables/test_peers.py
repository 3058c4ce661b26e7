"""Tests of products and attention against the tables of TraceLens for its own traces.

The tables are GEMM.csv, SDPA_fwd.csv and ops_summary.csv. Kernel time, calls and bytes are equal to the last digit.
TraceLens counts the addition of a bias as one operation per output; PyTorch's counter and Sawtooth do not.
"""

from __future__ import annotations

import json

import pytest

from sawtooth.analysis.knowledge.traffic import operator_bytes
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import new_manifest
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import SHARED

MIB = 1 << 20  # TraceLens calls this MB.
TRACES = SHARED / "peer_traces"
# (operator, M, N, K): calls, kernel time in µs, GFLOPS of a call, MiB of a call, whether a bias is added
H100 = {
    ("aten::addmm", 141, 512, 512): (17, 98.718, 0.0739968, 0.7763671875, True),
    ("aten::addmm", 141, 30522, 512): (1, 41.280, 4.41119205, 38.211021423339844, True),
    ("aten::addmm", 141, 512, 2048): (4, 33.089, 0.295770624, 2.689453125, True),
    ("aten::addmm", 141, 2048, 512): (4, 24.511, 0.2959872, 2.6923828125, True),
}
MI300 = {
    ("aten::mm", 8944, 2816, 1024): (48, 5308.273, 51.581550592, 71.0078125, False),
    ("aten::addmm", 8944, 1024, 1024): (72, 2954.763, 18.766086144, 36.939453125, True),
    ("aten::mm", 8944, 1024, 2816): (24, 2374.795, 51.581550592, 71.0078125, False),
    ("aten::mm", 8944, 1024, 1024): (24, 980.549, 18.756927488, 36.9375, False),
    ("aten::bmm", 32, 559, 1): (1, 27.342, 3.5776e-05, 0.07049179077148438, False),
}
H100_DIRECT_US = {
    "aten::addmm": 197.598,
    "aten::_flash_attention_forward": 37.408,
    "aten::native_layer_norm": 30.912,
    "aten::add": 14.752,
    "aten::index_select": 9.824,
    "aten::gelu": 9.599,
    "aten::all": 3.648,
    "aten::_local_scalar_dense": 2.240,
    "aten::eq": 1.760,
    "aten::add_": 1.696,
}
OPERATORS = (
    "SELECT name, input_dims, input_types, concrete_inputs, calls, gpu_self_ns, gpu_total_ns, flops FROM named_operators"
)


def _operators(tmp_path, file):
    folder = DataFolder(tmp_path).create()
    ref = ingest_file(TRACES / file, folder)
    library = Library(folder)
    analyse(new_manifest([ref], "peer"), library)
    with library.open(ref.id) as recording:
        rows = recording.rows(OPERATORS)
    library.close()
    return rows


@pytest.mark.skipif(not TRACES.is_dir(), reason="these traces are not part of the repository")
@pytest.mark.parametrize(
    ("file", "products"),
    [
        ("tl__traces_h100_gaunernst_bert-small-uncased__1016001.json.gz", H100),
        ("tl__traces_mi300_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", MI300),
    ],
)
def test_products_match_tracelens(tmp_path, file, products):
    seen = {}
    for name, dims, types, concrete, calls, self_ns, _, flops in _operators(tmp_path, file):
        if name not in ("aten::mm", "aten::addmm", "aten::bmm"):
            continue
        shapes = json.loads(dims)
        a, b = shapes[1:3] if name == "aten::addmm" else shapes[:2]
        seen[name, a[-2], b[-1], a[-1]] = (
            calls,
            self_ns / 1e3,
            flops / 1e9 / calls,
            operator_bytes(name, shapes, json.loads(types), json.loads(concrete or "null")) / MIB,
        )
    assert seen.keys() == products.keys()
    for (name, m, n, k), (calls, us, gflops, mib, bias) in products.items():
        without_bias = gflops - bias * m * n / 1e9
        assert seen[name, m, n, k] == (calls, pytest.approx(us), pytest.approx(without_bias), pytest.approx(mib))


@pytest.mark.skipif(not TRACES.is_dir(), reason="these traces are not part of the repository")
def test_operators_and_attention_match_tracelens(tmp_path):
    rows = _operators(tmp_path, "tl__traces_h100_gaunernst_bert-small-uncased__1016001.json.gz")
    direct = dict.fromkeys(H100_DIRECT_US, 0)
    for name, *_, self_ns, _, _ in rows:
        if self_ns:
            direct[name] = direct.get(name, 0) + self_ns
    assert {name: ns / 1e3 for name, ns in direct.items()} == pytest.approx(H100_DIRECT_US)
    ((calls, total_ns, flops),) = [
        (row[4], row[6], row[7]) for row in rows if row[0] == "aten::_scaled_dot_product_flash_attention"
    ]
    assert (calls, total_ns / 1e3, flops / 1e9 / calls) == (4, pytest.approx(37.408), pytest.approx(0.040716288))
