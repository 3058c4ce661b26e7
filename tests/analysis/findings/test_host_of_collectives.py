"""Tests of changes to collectives where the host is the limit.

The host's launches, copies and Python calls are removed or kept together with their collective.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.replay.edits import TimedOps, WithoutOps
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.collective_loops import NODE
from tests.support.pipelined import KERNEL, pipelined

STEPS, LAYERS, MICRO = 5, 3, 3
HOST_US = 200.0  # Time between two launches; the GPU finishes each kernel before the next launch.
GATHER, REDUCE, SCATTER = (
    f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)" for name in ("AllGather", "AllReduce", "ReduceScatter")
)
SEND = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CALLED = {GATHER: "_allgather_base", REDUCE: "allreduce", SCATTER: "_reduce_scatter_base", SEND: "broadcast"}


class SlowHost:
    """One rank whose host takes HOST_US for each launch.

    Every kernel runs for 10 us as soon as it is launched. A collective has ``elements`` elements.
    """

    def __init__(self, elements: int = 5_000_000) -> None:
        self.elements = elements
        self.trace = ChromeTrace(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
        self.now, self.group = 0.0, "0"

    def launch(self, kernel: str = KERNEL, *inside: str) -> None:
        """Launch ``kernel`` inside operators or annotations of these names."""
        begun, self.now = self.now, self.now + HOST_US
        for depth, name in enumerate(inside):
            self.trace.op(name, begun + 1 + depth, self.now - 1 - depth)
        args = (
            {
                "Collective name": CALLED[kernel],
                "dtype": "Float",
                "In msg nelems": self.elements,
                "Out msg nelems": self.elements,
            }
            | {"Group size": 2, "Process Group Name": self.group, "Process Group Ranks": "[0, 1]"}
            if kernel in CALLED
            else {}
        )
        self.trace.launch((self.now - 8, self.now - 6), (self.now - 5, self.now + 5), kernel, stream=17 if args else 7, **args)

    def step(self, number: int, begin: float) -> None:
        self.now += 20
        self.trace.step(number, begin, self.now)
        self.now += 2


def analysed(traces: list[ChromeTrace], folder: Path) -> RunResult:
    library = Library(DataFolder(folder / "data").create())
    files = [trace.write(folder / f"{i}.json") for i, trace in enumerate(traces)]
    result = analyse(ingest_into_runs(library.folder, [(f, f.name) for f in files], name="job").runs[0], library)
    library.close()
    return result


def rules_of(traces: list[ChromeTrace], folder: Path) -> set[str]:
    return {finding.rule for finding in analysed(traces, folder).findings}


def finding_of(traces: list[ChromeTrace], rule: str, folder: Path) -> tuple[Finding, float]:
    result = analysed(traces, folder)
    assert result.lead is not None and result.lead.best.ms is not None
    return next(f for f in result.findings if f.rule == rule), result.lead.best.ms


def test_keeping_gathered_weights_saves_the_host_the_work_of_the_second_gathers(tmp_path: Path) -> None:
    # Of 19 launches a step, 6 belong to the second gathers: the collective and the copy out of its buffer, for each of
    # 3 layers.
    host = SlowHost()
    for step in range(STEPS):
        begin = host.now
        for node in ((), (NODE,)):
            for layer in range(LAYERS):
                host.launch(GATHER, *node, f"FSDP::all_gather (blocks.{layer})")
                host.launch(KERNEL, *node, f"FSDP::all_gather_copy_out (blocks.{layer})")
                host.launch(KERNEL, *node)
        host.launch(SCATTER)
        host.step(step, begin)
    findings = analysed([host.trace], tmp_path).findings
    found = next(item for item in findings if item.rule == "fsdp-reshard")
    graph = next(item for item in findings if item.rule == "launch-bound")
    assert found.predicted_speedup == pytest.approx(1 / (1 - 6 / 19), rel=0.05)
    assert graph.gain_ms > found.gain_ms and findings.index(found) < findings.index(graph), (
        "FSDP must keep its weights before a graph can be captured"
    )


def test_no_graph_is_advised_for_the_older_fsdp(tmp_path: Path) -> None:
    host = SlowHost()
    for step in range(STEPS):
        begin = host.now
        for _ in range(2 * LAYERS):
            host.launch(KERNEL, "FullyShardedDataParallel.forward")
        host.step(step, begin)
    found, _ = finding_of([host.trace], "launch-bound", tmp_path)
    assert (found.predicted_step_ms, found.severity) == (None, "critical") and "block by block" in found.fix


def test_under_no_sync_the_host_copies_to_buckets_for_the_last_micro_batch_only(tmp_path: Path) -> None:
    # Of 12 launches a step, 4 are gone: the copy to the bucket and the reduction, after each of the first 2 of 3 micro-
    # batches.
    host = SlowHost()
    for step in range(STEPS):
        begin = host.now
        for _ in range(MICRO):
            host.launch(KERNEL, "DistributedDataParallel.forward")
            host.launch(KERNEL, NODE)
            host.launch(KERNEL, NODE, "torch::distributed::reducer::mul_out")
            host.launch(REDUCE, NODE, "c10d::allreduce_")
        host.step(step, begin)
    found, step_ms = finding_of([host.trace], "accumulation-syncs", tmp_path)
    assert found.predicted_step_ms == pytest.approx(step_ms * (1 - 4 / 12), rel=0.05)


def test_larger_buckets_save_host_calls(tmp_path: Path) -> None:
    # Of 50 launches a step, 23 are gone: 24 buckets of 1 MB are sent as one, and one bucket of 200 MB stays. No
    # communication is exposed for long.
    host = SlowHost(elements=250_000)
    for step in range(STEPS):
        begin = host.now
        host.launch(KERNEL, "DistributedDataParallel.forward")
        for _ in range(24):
            host.launch(KERNEL, NODE)
            host.launch(REDUCE, NODE, "c10d::allreduce_")
        host.elements = 50_000_000  # The gradient of an embedding table, which alone fills a bucket of any size.
        host.launch(REDUCE, NODE, "c10d::allreduce_")
        host.elements = 250_000
        host.step(step, begin)
    found, step_ms = finding_of([host.trace], "small-collectives", tmp_path)
    assert found.predicted_step_ms == pytest.approx(step_ms * (1 - 23 / 50), rel=0.05)
    assert "25 all-reduces per step" in found.title


@pytest.mark.parametrize(
    ("elements", "groups", "left"), [(250_000, ("0", "1"), 2), (250_000, ("0",), 1), (3_000_000, ("0",), None)]
)
def test_a_bucket_has_gradients_of_one_group_and_buckets_of_12_mb_are_not_small(
    tmp_path: Path, elements: int, groups: tuple[str, ...], left: int | None
) -> None:
    """If all-reduces of two groups alternate, one all-reduce of each group remains.

    Buckets of 12 MB have half of the usual size, so a user has chosen this size.
    """
    host = SlowHost(elements)
    for step in range(STEPS):
        begin = host.now
        for turn in range(24):
            host.group = groups[turn % len(groups)]
            host.launch(REDUCE, NODE, "c10d::allreduce_")
        host.step(step, begin)
    if left is None:
        assert "small-collectives" not in rules_of([host.trace], tmp_path)
        return
    found, _ = finding_of([host.trace], "small-collectives", tmp_path)
    (gone,) = (edit.ops for edit in found.edits if isinstance(edit, WithoutOps))
    (remaining,) = (edit.ops for edit in found.edits if isinstance(edit, TimedOps))
    assert len(gone) / len(remaining) == (24 - left) / left


def test_buckets_gain_nothing_if_their_copies_cost_a_slow_host_more(tmp_path: Path) -> None:
    """24 all-reduces of 100 us follow a backward pass, one every 60 us of the host.

    Overlapping them would save 1 ms; two copies for each gradient cost more.
    """
    host = SlowHost()
    for step in range(STEPS):
        begin = host.now
        for _ in range(24):
            host.launch(KERNEL, NODE)
        gpu = host.now + 10
        for _ in range(24):
            host.trace.op("c10d::allreduce_", host.now + 1, host.now + 55)
            host.trace.launch(
                (host.now + 50, host.now + 54), (max(gpu, host.now + 56), gpu + 100), REDUCE, stream=17,
                **{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": host.elements, "Out msg nelems": host.elements},
                **{"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"},
            )  # fmt: skip
            host.now, gpu = host.now + 60, gpu + 100
        host.now = gpu
        host.step(step, begin)
    found, _ = finding_of([host.trace], "gradients-reduced-after", tmp_path)
    assert (found.predicted_step_ms, found.severity) == (None, "info")


@pytest.mark.parametrize(("operator", "named"), [("aten::to", True), ("fsdp::split_with_sizes_copy", False)])
def test_copies_of_addresses_for_sharding_are_not_reported_as_small_copies_of_inputs(
    tmp_path: Path, operator: str, named: bool
) -> None:
    host = SlowHost()
    for step in range(STEPS):
        begin = host.now
        for _ in range(12):
            host.launch()
            host.trace.op(operator, host.now, host.now + 30)
            host.trace.op("aten::copy_", host.now + 5, host.now + 28)
            call, copied = (host.now + 10, host.now + 20), (host.now + 21, host.now + 23)
            host.trace.launch(call, copied, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=25_256)
            host.now += 40
        host.step(step, begin)
    assert ("small-copies" in rules_of([host.trace], tmp_path)) is named


@pytest.mark.slow
def test_more_microbatches_gain_nothing_if_the_host_limits_launches(tmp_path: Path) -> None:
    """With two microbatches, equal stages wait for a third of the step.

    Here the host needs the other two thirds to launch two microbatches. Launching eight takes even longer.
    """
    fast, _ = finding_of(pipelined((300.0, 300.0), 2), "pipeline-bubble", tmp_path / "quick")
    slow, _ = finding_of(pipelined((300.0, 300.0), 2, launch_us=200.0), "pipeline-bubble", tmp_path / "slow")
    assert fast.predicted_step_ms is not None and "8 microbatches" in fast.fix
    assert slow.predicted_step_ms is None and slow.severity == "info" and "Reduce the host's launches" in slow.fix


def test_fewer_microbatches_are_advised_if_the_host_limits_launches(tmp_path: Path) -> None:
    """Each of 16 microbatches works for 0.9 ms and takes the host four launches of 0.4 ms.

    So the host takes 25.6 ms, and the GPUs 16 * 0.9 ms + 0.9 ms = 15.3 ms. With 8 microbatches of the same work, the host
    takes 12.8 ms, and the GPUs 14.4 ms + 1.8 ms = 16.2 ms. With 4 they take 18 ms. The rest of the step does not change.
    """
    fewer, step_ms = finding_of(pipelined((300.0, 300.0), 16, launch_us=400.0, at_once=True), "pipeline-bubble", tmp_path)
    assert "Cut the batch into 8 larger microbatches" in fewer.fix
    assert step_ms >= 25.6
    assert fewer.predicted_high_ms == pytest.approx(16.2 + step_ms - 25.6, abs=0.3)


def test_no_cuda_graph_is_advised_for_the_step_of_a_pipeline(tmp_path: Path) -> None:
    launches, _ = finding_of(pipelined((5.0, 5.0), 16, launch_us=200.0, at_once=True), "launch-bound", tmp_path)
    assert "Compile the model of each pipeline stage" in launches.fix and launches.predicted_step_ms is None


def test_fewer_microbatches_are_not_advised_if_the_host_is_fast(tmp_path: Path) -> None:
    assert "pipeline-bubble" not in rules_of(pipelined((300.0, 300.0), 16), tmp_path)


def test_more_microbatches_gain_nothing_with_the_shortest_kernels(tmp_path: Path) -> None:
    # Kernels of 6 and 12 us have a fixed cost of 2 us each. Four kernels with the same work take 12 and 18 us in total. So a
    # step of eight microbatches is not shorter than a step of two.
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    assert "pipeline-bubble" in rules_of(pipelined((300.0, 300.0), 2, launch_us=0.5), tmp_path / "long")
    assert "pipeline-bubble" not in rules_of(pipelined((6.0, 6.0), 2, launch_us=0.5), tmp_path / "short")


def test_received_activations_are_not_parameters(tmp_path: Path) -> None:
    # The stage accumulates the gradient of its 1000 received elements, like that of its weights, and sends it back.
    trace = pipelined((300.0, 300.0), 2)[1]
    for dims in ([10, 100], [4, 30]):
        trace.op("torch::autograd::AccumulateGrad", 6000, 6002, [dims], ["float"])
    result = analysed([trace], tmp_path)
    with Library(DataFolder(tmp_path / "data")).open(result.ranks[0].recording_id) as recording:
        assert list(parameters_of(recording, 0)) == [(4, 30)]


@pytest.mark.parametrize(("kernel", "verb"), [(SEND, "Send parameters together"), (REDUCE, "Combine gradients")])
def test_broadcasts_of_single_parameters_are_the_optimizers(tmp_path: Path, kernel: str, verb: str) -> None:
    """Buckets of DistributedDataParallel do not change the broadcasts of ZeroRedundancyOptimizer."""
    host = SlowHost(elements=50_000)
    for step in range(STEPS):
        begin = host.now
        host.launch(KERNEL, NODE)
        for _ in range(30):
            host.launch(kernel, "Optimizer.step#ZeroRedundancyOptimizer.step")
        host.step(step, begin)
    found, _ = finding_of([host.trace], "small-collectives", tmp_path)
    assert found.action.short == verb
    assert ("ZeroRedundancyOptimizer" in found.changes[0].after) == (kernel == SEND)
