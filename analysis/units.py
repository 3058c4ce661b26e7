"""Numbers in the sentences of the analysis; screens have their own formats."""

from __future__ import annotations

from sawtooth.ingest.loop.numbers import in_words, significant

__all__ = ["in_bytes", "in_memory", "in_mhz", "in_number", "in_times", "in_words", "significant"]


def in_bytes(count: float, figures: int = 3) -> str:
    """Return a number of bytes for a sentence."""
    rounded = float(f"{count:.{figures - 1}e}")
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if rounded >= size:
            return f"{significant(count / size, figures)} {unit}"
    return f"{count:.0f} bytes"


def in_memory(count: float, figures: int = 3) -> str:
    """Return an amount of device or host memory for a sentence, in binary units as nvidia-smi and PyTorch."""
    rounded = float(f"{count:.{figures - 1}e}")
    for unit, size in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if rounded >= size:
            return f"{significant(count / size, figures)} {unit}"
    return f"{count:.0f} bytes"


def in_mhz(clock: float) -> str:
    """Return a clock with three digits, as the pages round it, such as 1,460 MHz."""
    return f"{float(f'{clock:.2e}'):,.0f} MHz"


def in_times(count: float) -> str:
    """Return a number of occurrences in words, such as "once", "2 times" or "1,240 times"."""
    return "once" if count == 1 else f"{count:,.0f} times" if count >= 10 else f"{count:.3g} times"


def times_and_period(times: int, steps: int, per_step_from: float = 1.0) -> tuple[int, str]:
    """Return a number of times and its period, such as (3, "in 5 steps") or (2, "per step").

    ``per_step_from`` is the smallest number of times per step that is rounded to times per step.
    """
    return (times, f"in {steps} steps") if times < per_step_from * steps else (round(times / steps), "per step")


def in_number(count: float, one: str, several: str = "") -> str:
    """Return a rounded count with its noun, such as "1 tensor" or "1,240 tensors".

    ``several`` is the plural if it is not ``one`` plus s.
    """
    return f"{count:,.0f} {one if round(count) == 1 else several or one + 's'}"


def percent(share: float, digits: int = 0) -> str:
    """Return a share (0 to 1) in percent, with a space before the sign: 12 %."""
    return f"{100 * share:.{digits}f} %"
