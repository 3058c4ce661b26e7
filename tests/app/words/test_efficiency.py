"""What MFU's numbers rest on is said once, and only metrics that say something else stand beside it."""

from __future__ import annotations

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.app.words.efficiency import mfu_doubt, utilizations


def readings(mfu: float, hfu: float, **more: object) -> dict[str, Reading]:
    shares = {"mfu": mfu, "mfu_at_dtype": mfu, "hfu": hfu, "achieved_tflops": 100.0}
    return {key: Reading(value, **more) for key, value in shares.items()}  # type: ignore[arg-type]


def test_a_share_that_equals_mfu_is_not_shown_again() -> None:
    assert utilizations(readings(0.3, 0.3)) == ["mfu", "achieved_tflops"]
    assert utilizations(readings(0.3, 0.4)) == ["mfu", "achieved_tflops", "hfu"]  # a third was computed twice


def test_a_doubt_is_said_once_and_none_of_what_is_measured() -> None:
    assert mfu_doubt(readings(0.3, 0.3)) is None
    said = mfu_doubt(readings(0.3, 0.3, trust="caution", notes=("The replay says 40 ms.", "Peak 989 TFLOP/s.")))
    assert said == "The step time behind these numbers is inferred, not measured. The replay says 40 ms."
