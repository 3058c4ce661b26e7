"""What telemetry says of GPU memory, in sentences."""

from __future__ import annotations

from sawtooth.app import format as fmt

IN_USE_OF_ALL = "Measured by telemetry: of all processes, with what the caching allocator reserves."


def in_use(peak_bytes: float, total_bytes: float | None) -> str:
    """Return the most that was in use, and what stayed free where the GPU's memory is known."""
    if not total_bytes:
        return f"At most {fmt.bytes_(peak_bytes)} of GPU memory is in use."
    free = max(total_bytes - peak_bytes, 0.0)
    return f"At most {fmt.bytes_(peak_bytes)} of {fmt.bytes_(total_bytes)} of GPU memory is in use: {fmt.share(free / total_bytes)} stays free."


def over_time(low_bytes: float, high_bytes: float) -> str:
    """Return how the use went over the recording: level, or between which amounts."""
    low, high = fmt.bytes_(low_bytes), fmt.bytes_(high_bytes)
    return f"The use stays at {high}" if low == high else f"The use lies between {low} and {high}"
