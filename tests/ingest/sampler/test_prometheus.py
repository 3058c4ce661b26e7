"""Tests of the sampler's metrics for Prometheus."""

from __future__ import annotations

import urllib.request

from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.prometheus import EXPORTED, PrometheusSink, parse_address
from tests.support.fake_nvml import FakeClock
from tests.support.sampler_bench import Bench


def test_metrics_have_base_units_and_recent_values() -> None:
    bench = Bench(("GPU-a",))
    sink = PrometheusSink(bench.time.clock())
    bench.sampler.sinks = [sink]
    bench.sampler.run(2)
    text = sink.text()
    labels = '{gpu="0",uuid="GPU-a",name="NVIDIA H200"}'
    assert f"sawtooth_gpu_utilization_ratio{labels} 0.71\n" in text
    assert f"sawtooth_gpu_sm_clock_hertz{labels} 1980000000\n" in text
    assert "# TYPE sawtooth_gpu_energy_joules_total counter" in text
    assert "sawtooth_samples_total 20\n" in text
    bench.time.advance(60)
    assert "utilization" not in sink.text()


def test_every_column_is_exported() -> None:
    assert set(EXPORTED) == set(COLUMNS)


def test_metrics_address_and_escaped_labels() -> None:
    assert parse_address(":9400") == ("127.0.0.1", 9400)
    assert parse_address("9400") == ("127.0.0.1", 9400)
    assert parse_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_address("[::1]:9400") == ("::1", 9400)
    sink = PrometheusSink(FakeClock().clock())
    port = sink.serve(("127.0.0.1", 0))
    sink.devices([{"device": 0, "uuid": 'a"b\\', "name": "x\ny"}], 0, 0)
    sink.write({"k": "tick", "m": 5_000_000_000, "g": [[50, *[None] * (len(COLUMNS) - 1)]]})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    assert 'sawtooth_gpu_utilization_ratio{gpu="0",uuid="a\\"b\\\\",name="x\\ny"} 0.5' in text
    sink.close()
