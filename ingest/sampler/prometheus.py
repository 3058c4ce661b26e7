"""Implementation of ``--prometheus``, which serves the latest sample as Prometheus metrics.

Names and units follow Prometheus' conventions: base units, ratios from 0 to 1, ``_total`` for counters.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sawtooth.ingest.quantities.registry import QUANTITIES
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.fields import COLUMNS, SOURCES
from sawtooth.ingest.sampler.step_rate import KEYS

STALE_NS = 10 * 10**9  # Older values are not served.
SLOW_STALE_NS = 60 * 10**9  # Older values of columns that are read only a few times a minute are not served.

# The name of the metric, the factor to the metric's unit, and the help text, by column.
EXPORTED = {
    quantity.column: (name, 1 / scale, quantity.about)
    for quantity in QUANTITIES
    for name, scale in quantity.names.get("sawtooth_exporter", {}).items()
}
SLOW_COLUMNS = {column for source in SOURCES for column in source.columns if source.longest_period_s > STALE_NS / 1e9}


class PrometheusSink:
    """Serves ``/metrics`` with the latest value of each column, because a tick does not have all columns."""

    def __init__(self, clock: SamplerClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: list[dict[str, Any]] = []
        self._latest: dict[int, dict[str, tuple[int, float]]] = {}
        self._ticks = 0
        self._steps: dict[str, float] = {}
        self._steps_ns = 0
        self._server: ThreadingHTTPServer | None = None

    def devices(self, gpus: list[dict[str, Any]], monotonic_ns: int, wall_ns: int) -> None:
        """Store the descriptions of the devices."""
        with self._lock:
            self._gpus = gpus

    def write(self, record: dict[str, Any]) -> None:
        """Store the values of a tick, or of the training's recent steps."""
        if record["k"] == "pace":
            with self._lock:
                self._steps, self._steps_ns = {key: value for key, value in record.items() if key in KEYS}, record["m"]
        if record["k"] != "tick":
            return
        with self._lock:
            self._ticks += 1
            for device, row in enumerate(record["g"]):
                values = self._latest.setdefault(device, {})
                for column, value in zip(COLUMNS, row or (), strict=False):
                    if value is not None:
                        values[column] = (record["m"], float(value))

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def text(self) -> str:
        """Return the metrics as text, without values older than 10 s (60 s for slow columns)."""
        now = self._clock.monotonic_ns()
        lines = ["# HELP sawtooth_samples_total Samples taken", "# TYPE sawtooth_samples_total counter"]
        with self._lock:
            lines.append(f"sawtooth_samples_total {self._ticks}")
            lines += self._step_lines(now)
            for column, (name, factor, description) in EXPORTED.items():
                stale = SLOW_STALE_NS if column in SLOW_COLUMNS else STALE_NS
                rows = []
                for gpu in self._gpus:
                    latest = self._latest.get(gpu["device"], {}).get(column)
                    if latest is not None and now - latest[0] <= stale:
                        rows.append(f"{name}{{{_labels(gpu)}}} {latest[1] * factor:.10g}")
                if rows:
                    kind = "counter" if name.endswith("_total") else "gauge"
                    lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}", *rows]
        return "\n".join(lines) + "\n"

    def _step_lines(self, now_ns: int) -> list[str]:
        """Return the lines about the training's steps; empty before the first step."""
        steps = self._steps
        if not steps:
            return []
        per_second = steps.get("per_s")
        values: list[tuple[str, float | None, str]] = [
            ("sawtooth_step", steps.get("step"), "Number of the newest step"),
            ("sawtooth_step_time_seconds", _product(steps.get("p50_ms"), 1e-3), "Median of the recent step times"),
            ("sawtooth_step_time_p95_seconds", _product(steps.get("p95_ms"), 1e-3), "95th percentile of the recent step times"),
            ("sawtooth_steps_per_second", per_second, "Steps per second"),
            ("sawtooth_samples_per_second", _product(steps.get("samples"), per_second), "Samples per second, with --samples"),
            ("sawtooth_flops_per_second", _product(steps.get("flops"), per_second), "FLOP/s of a GPU, with --flops"),
            ("sawtooth_step_age_seconds", (now_ns - self._steps_ns) / 1e9, "Time since the steps were last reported"),
        ]
        known_values = [(name, value, description) for name, value, description in values if value is not None]
        return [
            line
            for name, value, description in known_values
            for line in (f"# HELP {name} {description}", f"# TYPE {name} gauge", f"{name} {value:.10g}")
        ]

    def serve(self, address: tuple[str, int]) -> int:
        """Serve on ``address`` from a thread; return the port. Raises OSError if the port is in use."""
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                content = sink.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing, because the terminal belongs to the training job."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="prometheus", daemon=True).start()
        return int(self._server.server_address[1])


def _product(value: float | None, factor: float | None) -> float | None:
    return value * factor if value is not None and factor is not None else None


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST]:PORT`` or ``PORT``; the default host is loopback.

    Raises ValueError for other texts.
    """
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def _labels(gpu: dict[str, Any]) -> str:
    pairs = {"gpu": gpu["device"], "uuid": gpu["uuid"], "name": gpu["name"]}
    return ",".join(f'{key}="{_escape(str(value))}"' for key, value in pairs.items())


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
