"""Tests of the sampler when a GPU, the driver or a call of the driver fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sawtooth.ingest.sampler.calls import CallThread, HungError
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.driver import DriverLostError
from tests.support.fake_nvml import FakeClock, NVMLError
from tests.support.sampler_bench import Bench
from tests.support.threads import wait_for_end


def test_a_lost_gpu_is_an_event_and_returns_by_uuid() -> None:
    bench = Bench()

    def lose() -> None:
        bench.nvml.fail[("*", "GPU-a")] = 15

    def heal() -> None:
        del bench.nvml.fail[("*", "GPU-a")]
        bench.nvml.uuids.reverse()  # The reset renumbers the GPUs.

    memory = bench.run(8, (1, lose), (3, heal))
    assert [e["code"] for e in memory.events("gpu_lost")] == [15]
    assert [e["uuid"] for e in memory.events("gpu_back")] == ["GPU-a"]
    ticks = memory.ticks()
    assert all(t["g"][1] is not None for t in ticks)
    lost = [t for t in ticks if t["g"][0] is None]
    assert lost and ticks[-1]["g"][0] is not None
    assert [g["uuid"] for g in memory.heads[-1]] == ["GPU-a", "GPU-b"]  # The order of the devices does not change.


def test_the_sampler_survives_a_driver_reload_with_back_off() -> None:
    bench = Bench()

    def unload() -> None:
        bench.nvml.fail[("*", None)] = 1

    def load() -> None:
        del bench.nvml.fail[("*", None)]

    memory = bench.run(20, (1, unload), (6, load))
    assert memory.events("driver_lost")[0]["code"] == 1
    assert len(memory.events("driver_back")) == 1
    assert memory.events("heartbeat")
    assert bench.value(memory.ticks()[-1], "tensor_active_pct") == 5.0  # GPM works again.


def test_a_hung_call_causes_a_gap_without_invented_samples() -> None:
    bench = Bench()
    memory = bench.run(10, (2, lambda: setattr(bench.caller, "hung", True)), (6, lambda: setattr(bench.caller, "hung", False)))
    assert memory.events("hung")
    (gap,) = memory.events("gap")
    assert gap["reason"] == "NVML hung"
    assert 3.5e9 <= gap["to_m"] - gap["from_m"] <= 4.5e9
    assert not [t for t in memory.ticks() if gap["from_m"] < t["m"] < gap["to_m"]]
    assert memory.events("heartbeat")
    assert memory.ticks()[-1]["m"] > gap["to_m"]


def test_the_watchdog_stops_waiting() -> None:
    release = threading.Event()
    caller = CallThread(FakeClock().clock(), limit_s=0.01)
    with pytest.raises(HungError):
        caller.call(lambda: release.wait(5))
    assert caller.busy
    caller.close()  # close() does not wait for the call.
    release.set()
    done = threading.Event()
    real = CallThread(SamplerClock(), limit_s=5)
    assert real.call(lambda: done.set() or 7) == 7
    with pytest.raises(DriverLostError):
        real.call(lambda: (_ for _ in ()).throw(DriverLostError(9, "gone")))
    real.close()
    assert wait_for_end({thread for thread in threading.enumerate() if thread.name == "nvml"}) == []


@pytest.mark.parametrize("hangs_in", ["read", "close"])
def test_a_hung_driver_does_not_prevent_the_end_of_the_sampler(hangs_in: str) -> None:
    """NVML's calls share a lock, so the shutdown hangs while a call hangs."""
    bench, release, lock = Bench(), threading.Event(), threading.Lock()
    read, close = bench.driver.read, bench.driver.close

    def locked(call: Any, hangs: bool) -> Any:
        def waits() -> Any:
            with lock:
                if hangs:
                    release.wait(60)
                return call()

        return waits

    bench.driver.read = locked(read, hangs_in == "read")  # type: ignore[method-assign]
    bench.driver.close = locked(close, hangs_in == "close")  # type: ignore[method-assign]
    bench.sampler.caller = CallThread(SamplerClock(), limit_s=0.05)
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(bench.sampler.run(1)), daemon=True)
    thread.start()
    thread.join(20)
    assert ended == ["time"] and bench.memory.records[-1]["k"] == "end"
    assert bool(bench.memory.events("hung")) == (hangs_in == "read")
    release.set()


def test_missed_ticks_are_a_gap() -> None:
    bench = Bench(("GPU-a",))
    memory = bench.run(5, (2, lambda: bench.time.advance(1.0)))
    (gap,) = memory.events("gap")
    assert 1.0e9 <= gap["to_m"] - gap["from_m"] <= 1.2e9
    assert len({t["m"] for t in memory.ticks()}) == len(memory.ticks())


def test_a_transient_failure_is_null_with_its_code() -> None:
    bench = Bench(("GPU-a",))
    memory = bench.run(
        2,
        (0.5, lambda: bench.nvml.fail.update({("nvmlDeviceGetClockInfo", "GPU-a"): 999})),
        (1.0, lambda: bench.nvml.fail.clear()),
    )
    failed = [t for t in memory.ticks() if "n" in t]
    assert failed and failed[0]["n"][0] == [0, "clock_sm_mhz", 999]
    assert bench.value(failed[0], "clock_sm_mhz") is None and bench.value(failed[0], "mem_used_bytes") is not None
    assert "n" not in memory.ticks()[-1]


def test_the_fake_raises_what_the_bindings_raise() -> None:
    import pynvml

    assert pynvml.NVMLError(15).value == NVMLError(15).value == 15
