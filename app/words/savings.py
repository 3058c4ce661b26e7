"""What changes save, in words: hours, energy and money, of a day of such steps or of the steps to go."""

from __future__ import annotations

from sawtooth.analysis.outlook import HOURS_A_DAY, Outlook
from sawtooth.app import format as fmt


def lines(
    forecast: Outlook, *, steps: float | None, price_per_gpu_hour: float | None, waiting_w: float | None
) -> list[tuple[str, str]]:
    """Return label and value of what ``forecast`` brings: hours, MFU, energy, money.

    ``steps`` are the steps to go, None for a day of such steps. ``waiting_w`` is what the GPU draws in its troughs, W: what is saved is mostly
    waiting, so the energy is at least that. ``price_per_gpu_hour`` None leaves the money out.
    """
    before_h, after_h = forecast.hours_of(steps) if steps else (HOURS_A_DAY, HOURS_A_DAY - forecast.saved_hours_a_day)
    saved_gpu_h = (before_h - after_h) * forecast.gpus
    label = "saved" if saved_gpu_h >= 0 else "more"
    of = f"for {fmt.count(steps)} steps" if steps else f"{label} of every 24 h"
    time = f"{_hours(before_h)} → ≈ {_hours(after_h)}" if steps else f"≈ {_hours(abs(before_h - after_h))}"
    rows = [(of, time)]
    if forecast.mfu is not None and forecast.mfu_before is not None:
        of = " of the 16-bit peak" if max(forecast.mfu_before, forecast.mfu) > 1 else ""  # which narrow dtypes outrun
        before, after = fmt.share(forecast.mfu_before), fmt.share(forecast.mfu)
        if before != after:  # below a hundredth of a percent both are
            rows.append((f"MFU{of}", f"{before} → ≈ {after}"))
    if saved_gpu_h <= 0:
        return rows
    if waiting_w:
        rows.append(
            ("energy saved" if steps else "energy saved a day", f"≥ {fmt.number(saved_gpu_h * waiting_w / 1000)}\u00a0kWh")
        )
    if price_per_gpu_hour:
        on = f" on {forecast.gpus} GPUs" if forecast.gpus > 1 else ""
        rows.append((f"saved{on}", f"≈ {fmt.money(saved_gpu_h * price_per_gpu_hour)}"))
    return rows


def _hours(hours: float) -> str:
    return fmt.duration_ns(hours * 3600e9)
