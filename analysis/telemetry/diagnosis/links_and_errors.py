"""The PCIe link, memory errors, Xid errors and further processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, count_of_samples, duration, gpus_in_words
from sawtooth.analysis.telemetry.signal.means import counter_rises
from sawtooth.analysis.units import in_times, percent

MIN_NARROW_SHARE = 0.5  # A link may be retrained for a moment, so at least this share of the busy samples has to show it.
MIN_CORRECTED = 10  # Fewer corrected memory errors are ordinary.
# Meanings of NVIDIA's list of Xid errors; those of the hardware come first in severity.
XIDS = {13: "a kernel accessed invalid memory", 31: "a kernel accessed invalid memory", 43: "a process stopped its work", 45: "a process was stopped",
        48: "memory error that cannot be corrected", 62: "the GPU's controller halted", 63: "a memory row was remapped", 64: "a memory row could not be remapped",
        74: "NVLink error", 79: "the GPU fell off the bus", 92: "many corrected memory errors", 94: "contained memory error", 95: "uncontained memory error",
        119: "the GPU's controller did not answer", 120: "error of the GPU's controller"}  # fmt: skip
# A GPU is lost if it has no samples for this many seconds and for this many sample periods, while the other GPUs have samples.
LOST_S = 60.0
LOST_PERIODS = 5
SOFTWARE_XIDS = (13, 31, 43, 45)


def links_and_errors(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield narrow PCIe links, memory errors, Xid errors and further processes."""
    for gpu in gpus:
        yield from _link(gpu, gpus)
        yield from _errors(gpu, len(gpus))
        yield from _xid(gpu, len(gpus))
        yield from _processes(gpu, len(gpus))
        yield from _lost_gpu(gpu, gpus)


def _observation(
    gpu: DeviceSamples, kind: str, title: str, evidence: str, action: tuple[str, str, str], **fields: object
) -> Observation:
    defaults: dict[str, object] = {
        "devices": (gpu.device,), "confidence": "high", "unit": "count", "time_share": 1.0, "start_ns": int(gpu.times[0]), "end_ns": int(gpu.times[-1]),
    }  # fmt: skip
    return Observation(kind=kind, title=title, evidence=evidence, action=action, **(defaults | fields))  # type: ignore[arg-type]  # the fields of an Observation


def _link(gpu: DeviceSamples, gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield a link with fewer lanes or a lower generation than the card's, while the GPU works.

    An idle GPU lowers the generation to save power.
    """
    busy = gpu.at_work if np.isfinite(gpu.busy).any() else np.ones(len(gpu.times), bool)
    for column, highest_column, unit in (("pcie_width", "pcie_max_width", "lanes"), ("pcie_gen", "pcie_max_gen", "generation")):
        if column not in gpu or not busy.any():
            continue
        peer_values = [np.nanmax(g.values[column][g.at_work]) for g in gpus if g is not gpu and column in g and g.at_work.any()]
        peers = float(np.median(peer_values)) if len(peer_values) >= 3 else np.nan
        highest = gpu.values[highest_column] if highest_column in gpu else np.full(len(gpu.times), peers)
        reduced = busy & (gpu.values[column] < highest)
        recorded = busy & np.isfinite(gpu.values[column]) & np.isfinite(highest)
        if not recorded.any() or reduced.sum() < MIN_NARROW_SHARE * recorded.sum():
            continue
        current, possible = float(np.median(gpu.values[column][reduced])), float(np.median(highest[reduced]))
        values = (
            f"{current:.0f} of {possible:.0f} lanes"
            if unit == "lanes"
            else f"generation {current:.0f} instead of {possible:.0f}"
        )
        yield _observation(
            gpu, "narrow-pcie-link", f"The PCIe link of {_gpu_name(gpu, len(gpus))} has {values}",
            f"This is so in {count_of_samples(int(reduced.sum()), int(recorded.sum()))} in which the GPU works. "
            f"Copies between host and GPU can then take {possible / current if unit == 'lanes' else 2 ** (possible - current):.2g} times as long.",
            ("Check", f"slot, riser and BIOS of {_gpu_name(gpu, len(gpus))}", ": this is for the operator of the host."),
            severity="warning", unit=unit, value=current, record_next="nvidia-smi -q -d PCIE while the GPU works",
            time_share=gpu.share(reduced), details={"now": current, "highest": possible},
        )  # fmt: skip


def _errors(gpu: DeviceSamples, total: int) -> Iterator[Observation]:
    for column, kind in (("ecc_uncorrected_count", "uncorrected"), ("ecc_corrected_count", "corrected")):
        if column not in gpu:
            continue
        values = gpu.values[column]
        recorded = np.flatnonzero(np.isfinite(values))
        rises = counter_rises(values[recorded])
        count = float(rises.sum())
        if count < (1 if kind == "uncorrected" else MIN_CORRECTED):
            continue
        rise_times = gpu.times[recorded][1:][rises > 0]
        yield _observation(
            gpu, "memory-errors", f"{_gpu_name(gpu, total, start=True)} had {count:,.0f} {kind} memory error{'' if count == 1 else 's'}",
            f"The ECC counter rises {in_times(int((rises > 0).sum()))} in the recording.",
            ("Tell", "the operator of the host", ": a GPU with uncorrected errors gives wrong results or stops the job.") if kind == "uncorrected"
            else ("Watch", "the GPU's memory errors", ": many corrected ones come before uncorrected ones."),
            severity="critical" if kind == "uncorrected" else "warning", value=count, start_ns=int(rise_times[0]), end_ns=int(rise_times[-1]),
            record_next="nvidia-smi -q -d ECC,ROW_REMAPPER", details={"rises": int((rises > 0).sum())},
        )  # fmt: skip


def _xid(gpu: DeviceSamples, total: int) -> Iterator[Observation]:
    if "xid_last" not in gpu:
        return
    values = np.nan_to_num(gpu.values["xid_last"])
    for number in np.unique(values[values > 0]).astype(int).tolist():
        first = int(np.flatnonzero(values == number)[0])
        meaning = f": {XIDS[number]}" if number in XIDS else ""
        yield _observation(
            gpu, "xid-error", f"{_gpu_name(gpu, total, start=True)} reported Xid {number}{meaning}",
            "It is there from the first sample, so it may be older than the recording." if first == 0
            else f"It appears {duration(float(gpu.times[first] - gpu.times[0]) / 1e9)} after the recording's start.",
            ("Read", "the kernel's log", " (dmesg) at that time. This Xid is usually an error of the program." if number in SOFTWARE_XIDS else " (dmesg), and tell the operator of the host."),
            severity="warning" if number in SOFTWARE_XIDS else "critical", value=float(number), unit="Xid", start_ns=int(gpu.times[first]),
            confidence="high" if first else "medium", record_next="dmesg | grep -i xid", details={"before_the_recording": first == 0},
        )  # fmt: skip


def _processes(gpu: DeviceSamples, total: int) -> Iterator[Observation]:
    if "process_count" not in gpu:
        return
    values = gpu.values["process_count"]
    several = np.nan_to_num(values) >= 2
    share = gpu.share(several)
    if share < 0.02 or int(several.sum()) < 3:
        return
    highest_count = float(np.nanmax(values))
    all_the_time = share > 0.95
    times = gpu.times[several]
    yield _observation(
        gpu, "several-processes", f"{highest_count:.0f} processes use {_gpu_name(gpu, total)} {percent(share)} of the time",
        f"{count_of_samples(int(several.sum()), len(several))[0].upper()}{count_of_samples(int(several.sum()), len(several))[1:]} have more than one process. They do not show whose processes these are.",
        ("Check", "whose processes they are", ": a foreign one takes time from the job." if not all_the_time else ": workers of one job are ordinary, a foreign job is not."),
        severity="info" if all_the_time else "warning", confidence="medium", unit="processes", value=highest_count, time_share=share,
        start_ns=int(times[0]), end_ns=int(times[-1]), record_next="nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv -l 10", details={},
    )  # fmt: skip


def _lost_gpu(gpu: DeviceSamples, gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield a GPU whose samples end long before those of the others."""
    ends = [int(g.times[-1]) for g in gpus]
    last, missing = max(ends), (max(ends) - int(gpu.times[-1])) / 1e9
    continuing = sum(end > last - LOST_S * 1e9 for end in ends)
    if missing < max(LOST_S, LOST_PERIODS * gpu.period_s) or continuing < len(gpus) / 2:
        return
    yield _observation(
        gpu, "gpu-lost", f"GPU {gpu.device} has no samples after {duration((gpu.times[-1] - min(int(g.times[0]) for g in gpus)) / 1e9)}",
        f"The samples of {continuing} other GPU{'' if continuing == 1 else 's'} go on for {duration(missing)}. A GPU that fell off the bus, or a driver that no longer reads it, looks like this.",
        ("Check", f"whether GPU {gpu.device} still answers", ": nvidia-smi -L, and the kernel's log (dmesg). A job on it cannot go on."),
        severity="warning", unit="seconds", value=missing, time_share=missing * 1e9 / (last - int(gpu.times[0])), start_ns=int(gpu.times[-1]), end_ns=last,
        confidence="medium", record_next="dmesg | grep -i xid, and nvidia-smi -q", details={},
    )  # fmt: skip


def _gpu_name(gpu: DeviceSamples, total: int, *, start: bool = False) -> str:
    name = gpus_in_words([gpu.device], total)
    return name if start or total > 1 else "the GPU"
