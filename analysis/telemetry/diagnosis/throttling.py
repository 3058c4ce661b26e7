"""Clocks that the driver reduced, and clocks below the peers' without a recorded reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import (
    Kind,
    Observation,
    count_of_samples,
    gpus_in_words,
    mid_sentence,
)
from sawtooth.analysis.units import percent
from sawtooth.ingest.quantities.throttling import bits_of, holding_reasons

HEAT, POWER, HARDWARE = bits_of("heat"), bits_of("power"), bits_of("hardware")
# A reason is reported if at least MIN_SAMPLES samples have it, and if it lasts for MIN_SHARE of the time or for
# MIN_SECONDS.
MIN_SHARE = 0.05
MIN_SECONDS = 20.0
MIN_SAMPLES = 3  # Single samples with a reason are ordinary.
POWER_SHARE = 0.2  # Below this share of the time, the power cap hardly changes the mean clock.
MIN_CLOCK_LOSS = 0.03  # A smaller loss is within the spread of boost clocks.
PEER_CLOCK_RATIO = 0.9  # A clock below this share of the peers' median clock is reported.
MIN_PEERS = 3  # The median of fewer other GPUs of the same model is not a norm.
REASONS = "clocks_event_reasons.active, clocks.sm, clocks.max.sm, temperature.gpu and power.draw with nvidia-smi --query-gpu"


def throttled_gpus(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield what reduced the clocks of which GPUs."""
    unthrottled = {gpu.device: _unthrottled_clock(gpu) for gpu in gpus}
    explained: set[int] = set()
    reasons: tuple[tuple[Kind, int, str | None], ...] = (
        ("thermal-throttling", HEAT, "thermal_violation_pct"),
        ("hardware-throttling", HARDWARE, None),
        ("power-throttling", POWER, "power_violation_pct"),
    )
    for kind, bits, violation in reasons:
        throttled = [(gpu, mask) for gpu in gpus if (mask := _throttled_samples(gpu, kind, bits, violation)) is not None]
        if kind == "power-throttling" and throttled:
            yield _power(throttled, gpus, unthrottled)
        elif throttled:
            explained |= {gpu.device for gpu, _ in throttled}
            yield from (
                _reduced_clock(kind, gpu, mask, unthrottled[gpu.device] or _peer_clock(gpu, gpus, unthrottled), len(gpus))
                for gpu, mask in throttled
            )
    for name in dict.fromkeys(gpu.name for gpu in gpus):  # Models differ in their clocks.
        yield from _below_peers([gpu for gpu in gpus if gpu.name == name], explained)


def _peer_clock(gpu: DeviceSamples, gpus: Sequence[DeviceSamples], unthrottled: dict[int, float | None]) -> float | None:
    """Return the median unthrottled clock of the other GPUs of the same model; None if there are too few."""
    other_gpus = [peer for peer in gpus if peer is not gpu and peer.name == gpu.name]
    peers = [clock for peer in other_gpus if (clock := unthrottled[peer.device]) is not None]
    return float(np.median(peers)) if len(peers) >= MIN_PEERS else None


def _throttled_samples(gpu: DeviceSamples, kind: str, bits: int, violation: str | None) -> NDArray[np.bool_] | None:
    """Return the samples in which a reason was active while the GPU worked; None if there are too few."""
    mask = np.zeros(len(gpu.times), bool)
    if "clock_event_mask" in gpu:
        reason_bits = np.nan_to_num(gpu.values["clock_event_mask"]).astype(np.int64)
        mask |= (reason_bits & bits) != 0
        if kind == "hardware-throttling":
            mask &= (reason_bits & HEAT) == 0  # The driver also sets this bit for heat, which is reported separately.
    if violation is not None and violation in gpu:
        mask |= np.nan_to_num(gpu.values[violation]) > 0
    if np.isfinite(gpu.busy).any():
        mask &= gpu.at_work
    share, least_share = gpu.share(mask), POWER_SHARE if kind == "power-throttling" else MIN_SHARE
    long = kind != "power-throttling" and gpu.seconds(mask) >= MIN_SECONDS
    return mask if int(mask.sum()) >= MIN_SAMPLES and (share >= least_share or long) else None


def _unthrottled_clock(gpu: DeviceSamples) -> float | None:
    """Return the clock of a working GPU that nothing reduces, MHz."""
    if "clock_sm_mhz" not in gpu:
        return None
    clock = gpu.values["clock_sm_mhz"]
    reason_bits = np.nan_to_num(gpu.values.get("clock_event_mask", np.zeros(len(clock)))).astype(np.int64)
    mask = np.isfinite(clock) & gpu.at_work & ((reason_bits & (HEAT | HARDWARE | POWER)) == 0)
    return float(np.percentile(clock[mask], 75)) if int(mask.sum()) >= MIN_SAMPLES else None


def _clock_ratio(clock: float | None, unthrottled: float | None) -> float | None:
    return min(clock / unthrottled, 1.0) if clock is not None and unthrottled else None


def _reduced_clock(
    kind: Kind, gpu: DeviceSamples, mask: NDArray[np.bool_], unthrottled: float | None, gpu_count: int
) -> Observation:
    clock, unthrottled = gpu.mean("clock_sm_mhz", mask), unthrottled or _highest([gpu])
    share, ratio = gpu.share(mask), _clock_ratio(clock, unthrottled)
    slowed_ratio = ratio if ratio is not None and ratio < 1 - MIN_CLOCK_LOSS else None
    reason = {"thermal-throttling": "Heat", "hardware-throttling": "The hardware"}[kind]
    gpu_name = mid_sentence(gpus_in_words([gpu.device], gpu_count))
    if slowed_ratio is not None:
        title = f"{reason} reduces the clock of {gpu_name} by {percent(1 - slowed_ratio)}"
    elif ratio is not None:
        title = f"{reason} limits {gpu_name}, but its clock hardly falls"
    else:
        title = f"{reason} limits the clock of {gpu_name} {percent(share)} of the time"
    component = "cooling and airflow" if kind == "thermal-throttling" else "power supply and slot"
    advice = ", or move the job to another GPU." if kind == "thermal-throttling" else ": this is for the operator of the host."
    return Observation(
        kind=kind,
        devices=(gpu.device,),
        severity="critical" if slowed_ratio is not None and share * (1 - slowed_ratio) >= 0.1 else "info" if ratio and slowed_ratio is None else "warning",
        confidence="high" if slowed_ratio is not None else "medium",
        unit="clock ratio",
        value=ratio if ratio is not None else 1.0,
        time_share=share,
        start_ns=int(gpu.times[mask][0]),
        end_ns=int(gpu.times[mask][-1]),
        title=title,
        evidence=_evidence(gpu, mask, clock, unthrottled, slowed_ratio, gpu_count),
        action=("Check", f"{component} of {gpu_name}", advice),
        record_next="nvidia-smi -q -d PERFORMANCE,TEMPERATURE while it happens",
        details={"clock_mhz": clock, "free_clock_mhz": unthrottled, "reason_bits": _reasons(gpu, mask)},
    )  # fmt: skip


def _reasons(gpu: DeviceSamples, mask: NDArray[np.bool_]) -> int:
    """Return all bits of the reasons in these samples."""
    if "clock_event_mask" not in gpu:
        return 0
    return int(np.bitwise_or.reduce(np.nan_to_num(gpu.values["clock_event_mask"][mask]).astype(np.int64)))


def _highest(gpus: Sequence[DeviceSamples]) -> float | None:
    clocks_mhz = [float(np.nanmax(gpu.values["clock_sm_max_mhz"])) for gpu in gpus if "clock_sm_max_mhz" in gpu]
    return float(np.mean(clocks_mhz)) if clocks_mhz else None


def _evidence(
    gpu: DeviceSamples,
    mask: NDArray[np.bool_],
    clock: float | None,
    unthrottled: float | None,
    slowed_ratio: float | None,
    gpu_count: int,
) -> str:
    """Return the reason, clock and temperature, and the meaning for a job on several GPUs."""
    labels = [f"{reason.label} (0x{reason.bit:x})" for reason in holding_reasons(_reasons(gpu, mask)) if reason.kind != "power"]
    reason = f": {' and '.join(labels)}" if labels else ", by its violation counter"
    parts = [
        f"The driver gives the reason in {count_of_samples(int(mask.sum()), len(mask))}, {percent(gpu.share(mask))} of the time{reason}."
    ]
    if clock is not None:
        parts.append(f"The SM clock is {clock:,.0f} MHz in them" + (f", else {unthrottled:,.0f} MHz." if unthrottled else "."))
    if "temp_c" in gpu and np.isfinite(gpu.values["temp_c"][mask]).any():
        parts.append(f"The GPU reaches {np.nanmax(gpu.values['temp_c'][mask]):.0f} °C.")
    if slowed_ratio is not None and gpu_count > 1:
        parts.append(
            f"If {'both' if gpu_count == 2 else f'all {gpu_count}'} GPUs share a job and wait for each other, a step then takes up to {1 / slowed_ratio:.2f} times as long."
        )
    return " ".join(parts)


def _power(
    throttled: Sequence[tuple[DeviceSamples, NDArray[np.bool_]]],
    gpus: Sequence[DeviceSamples],
    unthrottled_clocks: dict[int, float | None],
) -> Observation:
    devices = tuple(gpu.device for gpu, _ in throttled)
    share = float(np.mean([gpu.share(mask) for gpu, mask in throttled]))
    clocks_mhz = [mean for gpu, mask in throttled if (mean := gpu.mean("clock_sm_mhz", mask)) is not None]
    clock = float(np.mean(clocks_mhz)) if clocks_mhz else None
    usual_mhz = [mhz for gpu, _ in throttled if (mhz := unthrottled_clocks[gpu.device]) is not None]
    unthrottled = float(np.mean(usual_mhz)) if usual_mhz else _highest([gpu for gpu, _ in throttled])
    ratio = _clock_ratio(clock, unthrottled)
    draws = [mean for gpu, mask in throttled if (mean := gpu.mean("power_w", mask)) is not None]
    limits = [float(np.nanmedian(gpu.values["power_limit_w"])) for gpu, _ in throttled if "power_limit_w" in gpu]
    draw_in_words = clock_in_words = ""
    if draws:
        subject = "It draws" if len(devices) == 1 else "They draw"
        limit = f" of {np.mean(limits):.0f} W" if limits else ""
        draw_in_words = f" {subject} {np.mean(draws):.0f} W{limit}."
    if clock is not None:
        otherwise = f", else {unthrottled:,.0f} MHz" if unthrottled else ""
        clock_in_words = f" The SM clock is {clock:,.0f} MHz then{otherwise}."
    return Observation(
        kind="power-throttling",
        devices=devices,
        severity="info",
        confidence="high",
        unit="clock ratio",
        value=ratio if ratio is not None else 1.0,
        time_share=share,
        start_ns=min(int(gpu.times[mask][0]) for gpu, mask in throttled),
        end_ns=max(int(gpu.times[mask][-1]) for gpu, mask in throttled),
        title=f"{gpus_in_words(devices, len(gpus))} {'works' if len(devices) == 1 else 'work'} at the power limit {percent(share)} of the time",
        evidence=f"The driver gives the power cap (0x4) as the reason for lower clocks.{clock_in_words}{draw_in_words} This is usual for dense work.",
        action=("Leave", "the clocks as they are", ", or ask the operator for a higher limit: it would raise the clock."),
        record_next="power.draw and enforced.power.limit, to see how near the draw is to the limit",
        details={"clock_mhz": clock, "free_clock_mhz": unthrottled, "reason_bits": POWER},
    )  # fmt: skip


def _power_cap_sentence(gpu: DeviceSamples) -> str:
    """Return a sentence on whether the driver gives the power cap as the reason while the GPU works."""
    capped = gpu.at_work & ((np.nan_to_num(gpu.values["clock_event_mask"]).astype(np.int64) & POWER) != 0)
    share = gpu.share(capped) / gpu.share(gpu.at_work)
    return (
        f"The driver gives the power cap as the reason {percent(share)} of that time."
        if share >= POWER_SHARE
        else "The driver gives no reason."
    )


def _below_peers(gpus: Sequence[DeviceSamples], explained: set[int]) -> Iterator[Observation]:
    """Yield GPUs whose clock is below their peers', without heat or the hardware as a recorded reason.

    The power cap does not explain it, because peers at the same limit do the same work at a higher clock.
    """
    working = {
        g.device: c for g in gpus if (c := g.mean("clock_sm_mhz", g.at_work)) is not None and g.share(g.at_work) > MIN_SHARE
    }
    if len(working) - 1 < MIN_PEERS:  # The GPU itself is not its own peer.
        return
    median_clock = float(np.median(list(working.values())))
    for gpu in gpus:
        clock = working.get(gpu.device)
        if clock is None or gpu.device in explained or clock >= PEER_CLOCK_RATIO * median_clock:
            continue
        celsius = gpu.mean("temp_c", gpu.at_work)
        temperature_in_words = f" at {celsius:.0f} °C" if celsius is not None else ""
        reason_sentence = (
            _power_cap_sentence(gpu) if "clock_event_mask" in gpu else "The reasons for lower clocks were not recorded."
        )
        yield Observation(
            kind="low-clock",
            devices=(gpu.device,),
            severity="warning",
            confidence="medium",
            unit="clock ratio",
            value=clock / median_clock,
            time_share=gpu.share(gpu.at_work),
            start_ns=int(gpu.times[0]),
            end_ns=int(gpu.times[-1]),
            title=f"GPU {gpu.device} runs at {percent(clock / median_clock)} of its peers' clock",
            evidence=f"While it works, its SM clock is {clock:,.0f} MHz{temperature_in_words}; the median of the {len(working)} GPUs is {median_clock:,.0f} MHz. {reason_sentence}",
            action=("Compare", f"limits and cooling of GPU {gpu.device} with its peers'", ": power limit, locked clocks, temperature. If they share a job, all wait for it."),
            record_next=REASONS,
            details={"clock_mhz": clock, "peers_mhz": median_clock},
        )  # fmt: skip
