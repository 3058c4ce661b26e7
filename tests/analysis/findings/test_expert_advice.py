"""Tests of advice that an expert would accept: excluded findings and maximum gains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sawtooth.analysis.findings.checking import _with_ranks
from sawtooth.analysis.findings.queries.host_reads import SAME_SHAPE_CHANGES
from sawtooth.analysis.run.model import Action, Explains, Finding
from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of


def test_fusing_an_optimizer_removes_neither_products_nor_communication() -> None:
    """The 60 updates take 240 of the optimizer's 752 µs on the GPU.

    The host needs 6 µs for each of them.
    """
    found = finding("adam_one_by_one", "optimizer-not-fused")
    assert found is not None and "60 kernels" in found.title
    assert found.gain_ms <= 60 * 6 / 1e3


@pytest.mark.parametrize(
    ("name", "removed", "counts"),
    [
        # Adam's 8 operators become an addition to the step counts and a fused operator. SGD's 3 become a fused operator.
        ("adam_foreach_on_a_slow_host", 6, 1),
        ("adam_foreach_and_a_call_without_work", 6, 1),
        ("adam_foreach_of_two_groups", 2 * 6, 2),
        ("sgd_foreach_of_two_groups", 2 * 2, 0),
    ],
)
def test_fusing_a_foreach_optimizer_saves_the_host_its_launches(name: str, removed: int, counts: int) -> None:
    """A removed operator takes the host 24 µs and 40 µs of Python. Counting steps takes 58 µs per group."""
    found = finding(name, "optimizer-foreach")
    assert found is not None
    assert found.gain_ms == pytest.approx((removed * (24 + 40) + counts * 58) / 1e3, rel=0.2)


def test_a_foreach_optimizer_outside_pytorch_has_no_fused_form() -> None:
    assert finding("muon_foreach", "optimizer-foreach") is None


def test_an_optimizer_outside_pytorch_gets_no_advice_for_pytorch_optimizers() -> None:
    assert not [f for f in result_of("own_optimizer").findings if "fused optimizer" in f.fix or "foreach" in f.fix]
    share = finding("own_optimizer", "optimizer-share")
    # 60 updates of 4 µs and 6 products of 20 µs are its work. The all-gather of 392 µs is communication.
    assert share is not None and share.ceiling_ms_per_step == pytest.approx(0.36)


@pytest.mark.parametrize("name", ["saves_few_tensors", "saves_two_of_eight_steps"])
def test_few_large_copied_tensors_are_a_checkpoint(name: str) -> None:
    first = result_of(name).findings[0]
    assert first.rule == "checkpoint-in-the-loop"
    assert not [f for f in result_of(name).findings if "losses and norms" in f.fix]
    assert first.predicted_step_ms is not None and 0.6 <= first.predicted_step_ms < 1.5, "a product takes 600 µs"


def test_advice_on_width_includes_its_multiples_and_the_heads() -> None:
    # 774 = 6 · 129, and 2322 = 3 · 774. Padded alone, 2322 would be 2368, which is not divisible by 3.
    found = finding("odd_model_width", "misaligned-dimensions")
    assert found is not None
    assert found.action.short == "Make the model's width 768 instead of 774 and pad 50257"
    assert "6 heads of 128 instead of 129. 2322 = 3 · 774 and 3096 = 4 · 774 change with it." in found.fix
    assert found.changes[0].after.splitlines()[0] == "width = 768   # 6 heads of 128"
    # A step is 940 + 8000 + 200 µs. At 989 TFLOP/s the vocabulary's product (2 · 4096 · 768 · 50304 FLOP) takes 320 µs, the
    # layer's four (24 · 4096 · 768² FLOP) 59 µs; kernels reach half of that and more. The attention takes at most 200 µs.
    assert found.predicted_step_ms is not None and 0.38 < found.predicted_step_ms < 2 * 0.38 + 0.2


def test_overlap_hides_at_most_the_parallel_computation() -> None:
    """Overlap hides no more communication than there is computation.

    A step computes for 200 + 300 + 36 µs and communicates alone for 1500 µs.
    """
    exposed = finding("communicates_most", "exposed-communication")
    assert exposed is not None and exposed.ceiling_ms_per_step == pytest.approx(0.536, abs=0.01)
    assert "at most 536 µs" in exposed.prediction_note and "DDP" in exposed.changes[0].after


def test_a_link_far_below_its_bandwidth_is_reported() -> None:
    # 4 MB in 1500 µs between two GPUs are 2.67 GB/s of the 450 of NVLink 4.
    slow = finding("communicates_slowly", "exposed-communication")
    assert slow is not None and "2.7 of the 450 GB/s" in slow.fix and "450" in slow.fix and "why the link is slow" in slow.fix


def test_communication_of_an_optimizer_gets_no_advice_for_gradients() -> None:
    exposed = finding("optimizer_communicates", "exposed-communication")
    assert exposed is not None and exposed.fix.startswith("Overlap the optimizer's communication")
    assert "DDP" not in exposed.changes[0].after


def test_a_finding_of_a_job_names_its_ranks() -> None:
    """Only rank 1 sleeps in each step. The collectives of the other job concern every rank."""
    python = finding("ddp_straggler", "python-between-operators")
    assert python is not None and python.title.endswith(" (only rank 1)")
    reduced = finding("reduced_after", "gradients-reduced-after")
    assert reduced is not None and "Measured on rank 1." in reduced.prediction_note


@pytest.mark.parametrize(("late", "title"), [((1,), "t (only rank 1)"), ((), "t (rank 1)")])
def test_only_a_rank_that_is_late_by_itself_loses_host_time(late: tuple[int, ...], title: str) -> None:
    # Rank 0 loses nothing to launches: it waits for rank 1 in collectives, though its host may be as slow.
    ranks = [SimpleNamespace(rank=number, device=0) for number in range(2)]
    waits = SimpleNamespace(stragglers=[SimpleNamespace(positions=late)] if late else [])
    context = SimpleNamespace(
        rank=ranks[1], run=SimpleNamespace(ranks=ranks, communication=waits), lost_ms=lambda *_, rank=ranks[1]: 5.0 * rank.rank
    )
    launches = Finding("launch-bound", "warning", "t", Action("Launch", "less"), "high", explains=Explains(("launch_bound",)))
    assert _with_ranks(context, launches).title == title  # type: ignore[arg-type]


def test_changes_that_help_after_the_loader_are_named_now() -> None:
    # The product takes 1 of 29 ms, and 1 of 4 ms after the loader's fix. In bf16 it takes about 0.1 ms.
    findings = result_of("starved_in_fp32").findings
    assert findings[0].rule == "data-loader-starves-gpu"
    later = next(f for f in findings if f.rule == "fp32-products")
    assert later.severity == "info" and later.predicted_step_ms is None and "after “" in later.title.lower()


def test_reads_in_generation_are_not_reads_of_the_loss() -> None:
    reads = finding("generate_fixed", "host-waits-for-gpu")
    assert reads is not None and "tokens" in reads.fix and "losses" not in reads.fix and "ended" in reads.changes[0].after


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("detr_on_host", "copy 1.02 kB in 16 copies per step"),  # DETR's matching: a cost matrix of 64 bytes for each image
        ("likeness_copies", "copy 25.2 MB in 2 copies per step"),  # The features of both images are copied.
    ],
)
def test_reads_of_other_tensors_are_not_called_losses(name: str, advised: str) -> None:
    reads = finding(name, "host-waits-for-gpu")
    assert reads is not None and advised in reads.fix and "losses" not in reads.fix
    assert "on the GPU" in reads.changes[0].after


def waits(trace: ChromeTrace, operator: str, at: float, kernel_us: float, late_us: float) -> float:
    """Add a kernel that ``operator`` waits for, then ``late_us`` of host time.

    Return the time at which the host goes on.
    """
    trace.op("aten::add", at, at + 9, [[64, 64]] * 2, ["float"] * 2)
    trace.launch((at + 2, at + 5), (at + 6, at + 6 + kernel_us), ADDS)
    end = at + 12 + kernel_us
    trace.op(operator, at + 10, end + 3, [[64]], ["bool"])
    trace.launch((at + 11, at + 14), (end - 4, end - 2), "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=8)
    trace.host("cuda_runtime", "cudaStreamSynchronize", at + 15, end + 1)
    return end + late_us


def test_a_mask_that_causes_most_of_the_waits_is_named(tmp_path: Path) -> None:
    """A step waits 150 µs for the host after one mask, and 10 µs after each of two reads."""
    trace, at = ChromeTrace(), 0.0
    for k in range(4):
        begin = at
        at = waits(trace, "aten::nonzero", at, 400, 150)
        for _ in range(2):
            at = waits(trace, "aten::_local_scalar_dense", at, 100, 10)
        trace.op("autograd::engine::evaluate_function: AddBackward0", at, at + 5)
        trace.step(k + 1, begin, at + 6)
        at += 6
    reads = next(f for f in analysed(tmp_path, trace).findings if f.rule == "host-waits-for-gpu")
    assert "nonzero waits for a size" in reads.fix and "losses and norms" in reads.fix
    assert reads.changes[0] in SAME_SHAPE_CHANGES


@pytest.mark.parametrize(
    ("name", "beside"), [("generate_fixed", "16 CUDA graphs per step, and 74 kernels"), ("mlp_graph", None)]
)
def test_launches_outside_replayed_graphs_are_named(name: str, beside: str | None) -> None:
    launches = finding(name, "launch-bound")
    assert (launches is None) if beside is None else (launches is not None and beside in launches.title)
    assert not [f for f in result_of(name).findings if "as one CUDA graph" in f.fix]
