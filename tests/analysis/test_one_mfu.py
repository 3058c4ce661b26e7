"""Tests that a run has one MFU everywhere, with the FLOPs of launched work only."""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.audit import audit
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.tables.efficiency import roofline_table
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.words.headline import headline
from sawtooth.app.words.run import mfu_fact
from sawtooth.ingest.schema import DataFolder
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace, matmul_loop

FLOPS = 2 * 8192**3  # 1.1 TFLOP: 556 µs at the 1,978.9 TFLOP/s of an H200 in FP8, 1,111 µs at its 989.4 in bf16


def fp8_loop(product_us: float) -> ChromeTrace:
    trace = matmul_loop(8, step_us=1000, matmul_us=product_us, other_us=950 - product_us)
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["name"] = "aten::_scaled_mm"
            event["args"] |= {
                "Input Dims": [[8192, 8192], [8192, 8192], [1], [1]],
                "Input type": ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2,
            }
    return trace


@pytest.mark.parametrize("product_us", [600, 900])
def test_an_fp8_run_has_the_same_mfu_everywhere(product_us: float) -> None:
    result = analysed([("t.json", fp8_loop(product_us).json())])
    assert result is not None
    share = FLOPS / 1978.9e12 / 1e-3
    for key in ("mfu", "hfu", "mfu_at_dtype"):
        reading = result.metrics[key]
        assert (reading.value, reading.trust) == (pytest.approx(share, rel=1e-3), "ok"), key
    assert next(row for row in audit(result) if row.key == "mfu").reading.value == result.metrics["mfu"].value
    fact = mfu_fact(result.metrics)
    assert fact is not None and fact[0] == "MFU, by each operator's dtype" and fact[1].startswith("56")
    assert report_json(result)["metrics"]["mfu"]["value"] == result.metrics["mfu"].value
    assert "16-bit" not in headline(result)
    product = result.metrics["mfu_factor_efficiency"]
    assert product.value == pytest.approx(FLOPS / 1978.9e12 / (product_us * 1e-6), rel=0.01)


def test_a_repeated_operator_that_launches_nothing_computes_nothing(tmp_path) -> None:
    trace, shapes = (
        matmul_loop(8, step_us=1000, matmul_us=40),
        ([[1024, 1024], [1024, 1024]], ["c10::BFloat16", "c10::BFloat16"]),
    )
    for k in range(8):
        trace.op("aten::mm", 1000 * k + 200, 1000 * k + 210, *shapes)
        trace.op("aten::mm", 1000 * k + 220, 1000 * k + 230, *shapes)
    path = trace.write(tmp_path / "t.json")
    folder = DataFolder(tmp_path / "d").create()
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    with Library(folder) as library:
        result = analyse(run, library)
        assert result.lead is not None
        with open_rank(library, result.lead) as view:
            dots = roofline_table(view).set_index("name")
    rate = 2 * 1024**3 / 40e-6 / 1e12
    assert result.metrics["flops_per_step"].value == pytest.approx(2 * 1024**3)
    assert dots.loc["aten::mm", "achieved_tflops"] == pytest.approx(rate)
    assert dots.loc["aten::mm", "attained_share"] <= 1


def test_without_dtypes_an_fp8_run_reaches_no_more_than_its_peak() -> None:
    trace = fp8_loop(600)
    for event in trace.events:
        event.get("args", {}).pop("Input type", None)
    for event in trace.events:  # Products at 2.2 PFLOP/s, which may be in 16 bit.
        if event["name"] == "aten::_scaled_mm":
            event["args"]["Input Dims"] = [[16384, 8192], [8192, 8192], [1], [1]]
    result = analysed([("t.json", trace.json())])
    assert result is not None and {result.metrics[key].trust for key in ("mfu", "hfu")} == {"unusable"}
