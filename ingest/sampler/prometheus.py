"""``--prometheus``: the latest sample under Prometheus' conventions (base units, ratios from 0 to 1, totals for counters)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ingest.sampler.clock import Clock
from ingest.sampler.fields import COLUMNS

STALE_NS = 10 * 10**9  # an older sample describes nothing any more
SLOW_STALE_NS = 60 * 10**9  # for what is read a few times a minute

# column: name, type, factor, help
EXPORTED: dict[str, tuple[str, str, float, str]] = {
    "util_pct": ("gpu_utilization_ratio", "gauge", 0.01, "Share of NVML's last window in which a kernel ran"),
    "mem_busy_pct": (
        "gpu_memory_busy_ratio",
        "gauge",
        0.01,
        "Share of NVML's last window in which device memory was read or written",
    ),
    "mem_used_bytes": ("gpu_memory_used_bytes", "gauge", 1, "Device memory in use"),
    "power_w": ("gpu_power_watts", "gauge", 1, "Power draw"),
    "temp_c": ("gpu_temperature_celsius", "gauge", 1, "GPU temperature"),
    "clock_sm_mhz": ("gpu_sm_clock_hertz", "gauge", 1e6, "SM clock"),
    "clock_event_mask": ("gpu_clock_event_reasons", "gauge", 1, "NVML clocks event reasons, bit mask"),
    "clock_mem_mhz": ("gpu_memory_clock_hertz", "gauge", 1e6, "Memory clock"),
    "mem_temp_c": ("gpu_memory_temperature_celsius", "gauge", 1, "Memory temperature"),
    "energy_j": ("gpu_energy_joules_total", "counter", 1, "Energy since the driver was loaded"),
    "gr_active_pct": ("gpu_graphics_active_ratio", "gauge", 0.01, "Graphics or compute engine active (GPM)"),
    "sm_active_pct": ("gpu_sm_active_ratio", "gauge", 0.01, "SMs active, mean over SMs (GPM)"),
    "sm_occupancy_pct": ("gpu_sm_occupancy_ratio", "gauge", 0.01, "Resident warps of the maximum (GPM)"),
    "integer_pct": ("gpu_integer_active_ratio", "gauge", 0.01, "Integer pipe active (GPM)"),
    "tensor_active_pct": ("gpu_tensor_active_ratio", "gauge", 0.01, "Any tensor pipe active (GPM)"),
    "tensor_dfma_pct": ("gpu_tensor_dfma_active_ratio", "gauge", 0.01, "Double-precision tensor pipe active (GPM)"),
    "tensor_hmma_pct": ("gpu_tensor_hmma_active_ratio", "gauge", 0.01, "Half-precision tensor pipe active (GPM)"),
    "tensor_imma_pct": ("gpu_tensor_imma_active_ratio", "gauge", 0.01, "Integer tensor pipe active (GPM)"),
    "dram_active_pct": ("gpu_dram_active_ratio", "gauge", 0.01, "Memory bandwidth in use of the peak (GPM)"),
    "fp64_pct": ("gpu_fp64_active_ratio", "gauge", 0.01, "FP64 pipe active (GPM)"),
    "fp32_pct": ("gpu_fp32_active_ratio", "gauge", 0.01, "FP32 pipe active (GPM)"),
    "fp16_pct": ("gpu_fp16_active_ratio", "gauge", 0.01, "FP16 pipe active, tensor cores excepted (GPM)"),
    "pcie_tx_bps": ("gpu_pcie_sent_bytes_per_second", "gauge", 1, "PCIe traffic from the GPU (GPM)"),
    "pcie_rx_bps": ("gpu_pcie_received_bytes_per_second", "gauge", 1, "PCIe traffic to the GPU (GPM)"),
    "nvlink_rx_bps": ("gpu_nvlink_received_bytes_per_second", "gauge", 1, "NVLink traffic to the GPU (GPM)"),
    "nvlink_tx_bps": ("gpu_nvlink_sent_bytes_per_second", "gauge", 1, "NVLink traffic from the GPU (GPM)"),
}


class PrometheusSink:
    """Keeps the latest value of each column (slow columns are not in every tick) and serves ``/metrics``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: list[dict[str, Any]] = []
        self._latest: dict[int, dict[str, tuple[int, float]]] = {}
        self._ticks = 0
        self._server: ThreadingHTTPServer | None = None

    def devices(self, gpus: list[dict[str, Any]], m: int, w: int) -> None:
        """Take the devices' names."""
        with self._lock:
            self._gpus = gpus

    def write(self, record: dict[str, Any]) -> None:
        """Take a tick's values."""
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
        """Return the exposition text; values older than ten seconds (sixty for slow columns) are left out."""
        now = self._clock.monotonic_ns()
        lines = ["# HELP sawtooth_samples_total Samples taken", "# TYPE sawtooth_samples_total counter"]
        with self._lock:
            lines.append(f"sawtooth_samples_total {self._ticks}")
            for column, (name, kind, factor, help_text) in EXPORTED.items():
                stale = SLOW_STALE_NS if column in ("energy_j", "clock_mem_mhz", "mem_temp_c") else STALE_NS
                rows = []
                for gpu in self._gpus:
                    held = self._latest.get(gpu["device"], {}).get(column)
                    if held is not None and now - held[0] <= stale:
                        rows.append(f"sawtooth_{name}{{{_labels(gpu)}}} {held[1] * factor:.10g}")
                if rows:
                    lines += [f"# HELP sawtooth_{name} {help_text}", f"# TYPE sawtooth_{name} {kind}", *rows]
        return "\n".join(lines) + "\n"

    def serve(self, address: tuple[str, int]) -> int:
        """Serve on ``address`` from a thread; return the port. Raises OSError where the port is taken."""
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
                """Say nothing: the terminal is the training job's."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="prometheus", daemon=True).start()
        return int(self._server.server_address[1])


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST]:PORT`` or ``PORT``; the host defaults to loopback. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def _labels(gpu: dict[str, Any]) -> str:
    pairs = {"gpu": gpu["device"], "uuid": gpu["uuid"], "name": gpu["name"]}
    return ",".join(f'{k}="{_escaped(str(v))}"' for k, v in pairs.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
