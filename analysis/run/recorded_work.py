"""The ledger of the profiled steps of a device, and the GPU's work in one of these steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS, LOADS_INLINE
from sawtooth.analysis.knowledge.hardware import Dispatch
from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import KERNEL_OWNERS
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.step_time_evidence import StepWork
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.run.model import LedgerRow
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.recording_row import RecordingRow

NEVER_WAITED = 0.01  # Share of the step. If the profiled steps wait less than this for the loader, the batches were ready.
# The largest cost of recording an operator without launches. A loader on a slow host had 7 µs for each of 5,149 operators.
MAX_RECORDING_NS = 8_000
QUEUED_NS = 1_000_000  # An operation that starts this long after its launch was queued. On an idle GPU it starts after 10 µs.
_SQL = queries_of(__file__)
WITHIN_GPU = r"DtoD|Device -> Device|Device-to-Device|DeviceToDevice"  # Copies within the GPU's memory.


def recorded_ledger(recording: Recording, device: int, window_ns: int, counted: int, outside_ns: int) -> list[LedgerRow]:
    """Return the rows that divide ``window_ns`` of a device by owner and cause, the largest first.

    ``outside_ns`` of the window lie before the first or after the last operation; they are idle time without a cause.
    """
    owned = [(owner, cause, ns, estimate) for owner, cause, ns, estimate in recording.rows(_SQL["ledger"], [device])]
    if outside_ns:
        unexplained = sum(ns for owner, cause, ns, _ in owned if (owner, cause) == ("idle", UNATTRIBUTED))
        owned = [row for row in owned if row[:2] != ("idle", UNATTRIBUTED)]
        owned.append(("idle", UNATTRIBUTED, unexplained + outside_ns, None))
        owned.sort(key=lambda row: -row[2])
    return [
        LedgerRow(
            device=device,
            owner=owner,
            cause=cause,
            ns=ns,
            ms_per_step=ns / counted / 1e6 if counted else None,
            ms_per_step_unprofiled_est=estimate / 1e6 if estimate is not None else None,
            share=ns / window_ns if window_ns else 0.0,
        )
        for owner, cause, ns, estimate in owned
    ]


def owned_ns(ledger: Iterable[LedgerRow]) -> dict[str, int]:
    """Return the ns of each owner."""
    owned: dict[str, int] = {}
    for row in ledger:
        owned[row.owner] = owned.get(row.owner, 0) + row.ns
    return owned


def outside_ns(recording: Recording, row: RecordingRow, device: int) -> int:
    """Return the ns before the first and after the last GPU operation of a recording without steps.

    If the first operation was queued for long, only the time before its launch counts: the GPU then did other work that is not
    in the recording. The result is 0 for a truncated file, which may lack the last operations.
    """
    if row.truncated or row.span_ns is None:
        return 0
    first, last = row.span_ns
    launched, began, ended = recording.rows(_SQL["operations_range"], [device])[0]
    start_ns = launched if launched is not None and began - launched > QUEUED_NS else began
    return max(start_ns - first, 0) + max(last - ended, 0)


def step_work(
    recording: Recording, device: int, facts: DeviceFacts, ledger: Sequence[LedgerRow], counted: int, dispatch: Dispatch
) -> StepWork:
    """Return the GPU's work in one of the ``counted`` steps that ``ledger`` divides."""
    owned = {owner: ns / counted for owner, ns in owned_ns(ledger).items()}
    # Collectives that run during computation count too: the GPU is busy while it waits in them.
    on_device = {"device": device, "within": recording.named(WITHIN_GPU)}
    copies, pageable, communication = recording.rows(_SQL["copies_and_communication"], on_device)[0]
    allocating = recording.rows(_SQL["allocating"], [device])[0][0]
    waits = sum(row.ns for row in ledger if row.cause == "data_wait") / counted
    loading = sum(_unprofiled_ns(row, counted) for row in ledger if row.cause == "data_wait")
    workers, inline = recording.named(LOADS_IN_WORKERS), recording.named(LOADS_INLINE)
    inside = recording.rows(_SQL["loading_operators"], {"device": device, "loading": inline})[0][0] if loading and inline else 0
    least_loading_ns = min(loading, max(waits - inside / counted * MAX_RECORDING_NS, 0.0))
    overlap_ns, sum_ns, moves, moves_ns = recording.rows(_SQL["resident"], on_device)[0]
    kernel_ns = sum(owned.get(owner, 0.0) for owner in KERNEL_OWNERS)
    return StepWork(
        kernel_ns=kernel_ns,
        dispatched=(facts.kernels_in_counted_steps - facts.graph_kernels_in_counted_steps - overlap_ns + moves) / counted,
        moves_ns=float(moves_ns) / counted,
        in_graphs=facts.graph_kernels_in_counted_steps / counted,
        beside_ns=0.0
        if communication
        else max(float(sum_ns) / counted - kernel_ns, 0.0),  # Collectives run concurrently by design.
        communication_ns=float(communication) / counted,
        copies_ns=float(copies) / counted,
        pageable_ns=float(pageable) / counted,
        allocating_ns=float(allocating) / counted,
        waits_ns=waits,
        loading_ns=0.0 if workers else loading,
        loading_least_ns=0.0 if workers else least_loading_ns,
        hidden_loader=bool(workers) and waits < NEVER_WAITED * sum(owned.values()),
        dispatch=dispatch,
    )


def _unprofiled_ns(row: LedgerRow, counted: int) -> float:
    """Return a ledger row's time per step (ns) without the profiler's cost, or as recorded if not known."""
    return row.ns / counted if row.ms_per_step_unprofiled_est is None else row.ms_per_step_unprofiled_est * 1e6
