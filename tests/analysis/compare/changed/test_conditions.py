"""Tests of the table of other differences: every recorded condition, on both sides.

Swapped sides give the mirrored table.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from sawtooth.analysis.compare.changed.conditions import Condition, condition_pairs, shared_conditions
from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.agent.answers import comparison_of
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.reports import comparison as report
from sawtooth.app.words.comparisons import conditions as words
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.findings_of import library, result_of


def recorded(
    folder: Path, name: str, *, torch: str, variables: dict[str, str], batch: int, watts: int, mhz: int, **run: object
) -> Side:
    """Return a run whose trace and telemetry name its conditions."""
    loop = matmul_loop()
    loop.top |= {"made_for": name, "host_name": f"host-{name}", "cuda_runtime_version": 13000}
    loop.top["set_up"] = {"torch": torch, "runtime": None, "environment": variables}
    loop.op(
        "aten::embedding", 1, 2, [[50304, 768], [batch, 1024], [], [], []], ["float", "long int", "Scalar", "Scalar", "Scalar"]
    )
    place = folder / name
    place.mkdir()
    telemetry = [{"meta": True, "driver": f"580.{watts}", "gpus": [{"gpu": 0, "name": "NVIDIA H200", "power_limit_w": watts}]}]
    telemetry += [{"t_ns": BASE_NS + i * 100_000_000, "gpu": 0, "gpu_util": 99, "sm_mhz": mhz} for i in range(60)]
    (place / "nvml.jsonl").write_text("".join(json.dumps(line) + "\n" for line in telemetry))
    data = DataFolder(folder / "data")
    files = [(loop.write(place / "trace.json"), "trace.json"), (place / "nvml.jsonl", "nvml.jsonl")]
    manifest = msgspec.structs.replace(ingest_into_runs(data, files, name=name).runs[0], **run)
    with Library(data) as store:
        return side_of([analyse(manifest, store)], store)


def differing(comparison: Comparison) -> dict[str, tuple[str | None, str | None]]:
    return {pair.what: (pair.a, pair.b) for pair in comparison.conditions if pair.differs}


def test_every_different_condition_is_in_the_table_and_mirrored(tmp_path: Path) -> None:
    a = recorded(
        tmp_path, "a", torch="2.12", variables={"OMP_NUM_THREADS": "1"}, batch=8, watts=700, mhz=1980,
        command=["python", "train.py", "--lr", "1", "--api-key", "a"],
    )  # fmt: skip
    b = recorded(
        tmp_path, "b", torch="2.13", variables={"NCCL_ALGO": "Ring"}, batch=16, watts=500, mhz=1600,
        command=["python", "train.py", "--lr", "2", "--api-key", "b"],
    )  # fmt: skip
    there, back = compare(a, b), compare(b, a)
    expected = {
        "--lr": ("1", "2"),
        "--api-key": ("set", "set"),
        "SM clock, mean": ("1,980 MHz", "1,600 MHz"),
        "Power limit": ("700 W", "500 W"),
        "Driver": ("580.700", "580.500"),
        "Host": ("host c151e3", "host 86947d"),
        "PyTorch": ("2.12", "2.13"),
        "Batch size of the inputs": ("8", "16"),
        "OMP_NUM_THREADS": ("1", "not set"),
        "NCCL_ALGO": ("not set", "Ring"),
    }
    assert differing(there) == expected
    assert differing(back) == {what: values[::-1] for what, values in expected.items()}
    assert "The same on both sides: GPU, CUDA version, world size, sequence length" in words.unchanged_conditions(there)
    as_json = {row["what"]: (row["a"], row["b"]) for row in compare_json(there)["conditions"] if row["differs"]}
    assert as_json == expected
    assert {row["what"]: (row["a"], row["b"]) for row in comparison_of(there).also_differs} == expected
    for text in (report.text(there), report.markdown(there)):
        assert text.index(words.TITLE) < text.index("580.500") < text.index("Not recorded on one side or on both")


def test_clocks_within_their_usual_spread_and_unknown_values_do_not_differ() -> None:
    def pairs(a: Condition, b: Condition) -> list[bool]:
        return [pair.differs for pair in condition_pairs([a], [b])]

    assert pairs(
        Condition("clock", "Clock", "1,980 MHz", 1980, 0.03), Condition("clock", "Clock", "1,930 MHz", 1930, 0.03)
    ) == [False]
    assert pairs(
        Condition("clock", "Clock", "1,980 MHz", 1980, 0.03), Condition("clock", "Clock", "1,900 MHz", 1900, 0.03)
    ) == [True]
    workers = [
        Condition("loader", "Loader", text, n, kind="in workers") for text, n in (("in workers", None), ("in 8 workers", 8))
    ]
    assert pairs(*workers) == [False]
    # Each condition is known on one side only.
    assert pairs(Condition("host", "Host", "x"), Condition("driver", "Driver", "1")) == [False, False]
    # B may not record any
    assert [pair.differs for pair in condition_pairs([Condition("variable A", "A", "1")], [])] == [False]


def test_the_loader_shows_the_batch_size_if_no_shape_does(tmp_path: Path) -> None:
    def of(name: str, batch: int) -> Side:
        files = [(matmul_loop().write(tmp_path / f"{name}.json"), f"{name}.json")]
        manifest = ingest_into_runs(DataFolder(tmp_path / "data"), files, name=name).runs[0]
        with Library(DataFolder(tmp_path / "data")) as store:
            facts = UserFacts(loader_batch=float(batch))
            return side_of([analyse(msgspec.structs.replace(manifest, facts=facts), store)], store)

    comparison = compare(of("a", 64), of("b", 512))
    assert differing(comparison)["Batch size of the loader"] == ("64", "512")
    assert "batch size" not in words.unchanged_conditions(comparison)


def test_several_runs_of_a_side_show_all_their_values() -> None:
    sides = [[Condition("host", "Host", name), Condition("gpu", "GPU", "H200")] for name in ("x", "y", "x")]
    assert [one.value for one in shared_conditions(sides)] == ["x; y", "H200"]


@cache
def recording(name: str) -> Side:
    return side_of([result_of(name)], library())


@pytest.mark.slow
def test_recorded_pairs_name_precision_batch_and_layout() -> None:
    assert differing(compare(recording("gpt_fp32"), recording("gpt_tf32")))["Compute dtype"] == ("FP32", "TF32")
    assert differing(compare(recording("small_batch"), recording("gpt_small")))["Batch size of the inputs"] == ("2", "32")
    layouts = {pair.what: pair.a for pair in compare(recording("ddp_straggler"), recording("ddp_balanced")).conditions}
    assert (layouts["World size"], layouts["Parallel layout"]) == ("2", "data × 2")
