"""A small training step with nn.Module calls, forward and backward."""

from __future__ import annotations

from tests.support.chrome_trace import ChromeTrace

KERNEL = "void at::native::vectorized_elementwise_kernel<4, Add>(int)"


def module(trace: ChromeTrace, name: str, start: float, end: float) -> None:
    trace.host("python_function", f"nn.Module: {name}", start, end, **{"Python id": len(trace.events), "Python module id": 0})


def work(
    trace: ChromeTrace, name: str, start: float, gpu: tuple[float, float], sequence: int | None, forward_thread: int = 0
) -> None:
    """Add an operator of 8 µs that launches one kernel."""
    numbers = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": forward_thread}
    trace.op(name, start, start + 8, **numbers)
    trace.launch((start + 2, start + 4), gpu, KERNEL)


def small_training() -> ChromeTrace:
    """Return the trace of a step in which Net calls Linear_0, adds, and calls Linear_1.

    The loss, the backward pass on thread 2 and the optimizer are outside of Net.
    """
    trace = ChromeTrace()
    module(trace, "Net_0", 10, 100)
    module(trace, "Linear_0", 20, 50)
    work(trace, "aten::addmm", 25, (40, 140), 6)
    # This operator makes no node, so Linear_1's product has the same number.
    trace.op("aten::view", 46, 48, **{"Sequence number": 7, "Fwd thread id": 0})
    work(trace, "aten::add", 51, (140, 145), 8)
    module(trace, "Linear_1", 60, 90)
    work(trace, "aten::addmm", 65, (145, 165), 7)
    work(trace, "aten::mse_loss", 110, (165, 168), 9)
    trace.thread = 2
    work(trace, "MseLossBackward0", 130, (168, 172), 9, 1)
    work(trace, "AddmmBackward0", 140, (172, 182), 7, 1)
    work(trace, "torch::autograd::AccumulateGrad", 150, (182, 184), None)
    work(trace, "AddBackward0", 160, (184, 189), 8, 1)
    work(trace, "AddmmBackward0", 170, (189, 239), 6, 1)
    trace.thread = 1
    work(trace, "aten::_foreach_add_", 180, (239, 240), None)
    return trace
