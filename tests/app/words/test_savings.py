"""What changes save: hours, energy and money, in words."""

from sawtooth.analysis.outlook import Outlook
from sawtooth.app.words import savings

# 312 → 26 ms on 8 GPUs: of a day eleven twelfths, 22 h, are saved, and 8 × 22 = 176 GPU-hours
TWELVE_TIMES = Outlook(before_ms=312.0, after_ms=26.0, mfu_before=0.005, gpus=8)


def lines(
    forecast: Outlook, steps: float | None = None, price: float | None = None, watt: float | None = None
) -> dict[str, str]:
    found = savings.lines(forecast, steps=steps, price_per_gpu_hour=price, waiting_w=watt)
    return {label.replace("\u00a0", " "): value.replace("\u00a0", " ") for label, value in found}


def test_of_a_day_with_energy_at_least_what_waiting_draws_and_money_where_a_price_is_set() -> None:
    assert lines(TWELVE_TIMES) == {"saved of every 24 h": "≈ 22.0 h", "MFU": "0.50 % → ≈ 6.0 %"}
    found = lines(TWELVE_TIMES, price=3.0, watt=100.0)
    assert found["energy saved a day"] == "≥ 17.6 kWh"
    assert found["saved on 8 GPUs"] == "≈ $ 528.00"


def test_of_the_steps_to_go() -> None:
    found = lines(TWELVE_TIMES, steps=1e6, price=1.0)
    assert found["for 1.00 M steps"] == "86.7 h → ≈ 7.22 h"
    assert lines(TWELVE_TIMES, steps=1e6, watt=100.0)["energy saved"] == "≥ 63.6 kWh"  # 635.6 GPU-hours at 100 W
    assert found["saved on 8 GPUs"] == "≈ $ 635.56"  # 8 × (86.667 − 7.222)


def test_a_slower_step_saves_nothing() -> None:
    slower = Outlook(before_ms=312.0, after_ms=325.0, mfu_before=None, gpus=1)
    assert lines(slower, price=3.0, watt=100.0) == {"more of every 24 h": "≈ 60.0 min"}


def test_an_mfu_too_small_to_tell_from_the_one_after_is_left_out() -> None:
    assert "MFU" not in lines(Outlook(before_ms=20.0, after_ms=10.0, mfu_before=2e-5, gpus=1))
