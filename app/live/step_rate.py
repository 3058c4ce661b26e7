"""The step rate of a running training, from the step marks of `sawtooth run --push`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.app import format as fmt

SILENT_STEPS, SILENT_S = 5, 10.0  # Missing steps are reported after 10 s, and after five steps of the 95th percentile.
MAX_NUMBER = 1e18  # Largest accepted number: a larger one cannot be a measurement.


@dataclass(frozen=True)
class LiveStepRate:
    """Numbers of the recent steps up to ``step``, which ended at ``at_ns`` of the session's clock.

    Times are in ms, and ``per_s`` is steps per second. ``samples`` and ``flops`` are per step, if known.
    """

    at_ns: int
    step: int
    p50_ms: float
    p95_ms: float
    per_s: float
    samples: float | None = None
    flops: float | None = None

    @classmethod
    def of(cls, record: dict[str, Any], at_ns: int) -> LiveStepRate:
        """Return the numbers of a record; raises ValueError, KeyError or TypeError if the record is invalid."""
        needed = [float(record[key]) for key in ("step", "p50_ms", "p95_ms", "per_s")]
        numbers = [float(record[key]) if record.get(key) is not None else None for key in ("samples", "flops")]
        if not all(
            math.isfinite(value) and 0 <= value < MAX_NUMBER for value in (*needed, *(v for v in numbers if v is not None))
        ):
            raise ValueError(record)
        return cls(at_ns, int(needed[0]), *needed[1:], *numbers)

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second on this rank; None if their number per step is not known."""
        return self.samples * self.per_s if self.samples else None

    def mfu(self, gpu_name: str) -> float | None:
        """Return FLOPs per second ÷ the GPU's dense 16-bit peak; None if either is not known."""
        gpu = identify(gpu_name, None, None, None, None)
        peak = (gpu.peak_tflops("bf16") or gpu.peak_tflops("fp16")) if gpu is not None else None
        return self.flops * self.per_s / (peak * 1e12) if self.flops and peak else None

    def silent_s(self, now_ns: int) -> float | None:
        """Return the seconds since the last step if this is unusually long, else None."""
        since = (now_ns - self.at_ns) / 1e9
        return since if since > max(SILENT_S, SILENT_STEPS * self.p95_ms / 1e3) else None

    def sentence(self, gpu_name: str, now_ns: int) -> str:
        """Return the sentence for the Live page."""
        rate = (
            f"{fmt.number(self.per_s)} steps/s" if self.samples_per_s is None else f"{fmt.number(self.samples_per_s)} samples/s"
        )
        mfu = self.mfu(gpu_name)
        parts = [f"median {fmt.duration_ms(self.p50_ms)}", f"95th percentile {fmt.duration_ms(self.p95_ms)}", rate]
        sentence = f"Step {self.step:,}: {', '.join([*parts, *([f'MFU {fmt.share(mfu)}'] if mfu is not None else [])])}."
        silent = self.silent_s(now_ns)
        return sentence if silent is None else f"{sentence} No step has ended for {fmt.duration_ns(silent * 1e9)}."
