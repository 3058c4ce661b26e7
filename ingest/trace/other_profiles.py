"""Names of profiles that other tools write, so that a refusal says what to record instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sawtooth.ingest.source import refuse_type

EXPORT = "Export the trace with prof.export_chrome_trace('trace.json.gz')."
NSIGHT = (
    "Record the job with nsys profile -t cuda,nvtx -o run COMMAND. Then use the file of nsys export --type sqlite run.nsys-rep."
)
MEMORY_TIMELINE = re.compile(rb"\s*\[\s*\[\s*\d{6,}\s*[,\]]")  # two lists: times in µs since 1970, and sizes by category
CHAKRA = re.compile(rb'"schema"\s*:\s*"[^"]*chakra', re.IGNORECASE)
LONGEST_PACKET = 1 << 20  # bytes; the first packets of a Perfetto trace are descriptions of clocks and processes
PACKET = 0x0A  # key of a Perfetto trace's only field, a packet: number 1, with a length
# Processes and threads as XLA's and TensorFlow's profilers name them, and categories of Chrome's own tracing.
TENSORFLOW_PROCESS = re.compile(r"/job:\w+/replica:|/device:\w+:\d+ (Compute|Tensors)|\bstream:all\b")
XLA_PROCESS = re.compile(r"^/(device|host):")
BROWSER_CATEGORY = re.compile(r"devtools\.timeline|\b(blink|v8|cc|viz|toplevel|loading|netlog)\b")


def refuse_other_profile(head: bytes, name: str) -> None:
    """Raise SourceError if ``head`` (the first uncompressed bytes) or ``name`` is that of another tool's profile."""
    lower = name.lower()
    if lower.endswith((".xplane.pb", ".xplane.pb.gz")):
        raise refuse_type("a profile of JAX or TensorFlow (XPlane)", NSIGHT)
    if lower.removesuffix(".gz").endswith((".pftrace", ".perfetto-trace")) or _is_perfetto(head):
        raise refuse_type("a Perfetto trace in its binary format, which PyTorch writes to a path that ends in .pftrace", EXPORT)
    if MEMORY_TIMELINE.match(head):
        raise refuse_type("a memory timeline of PyTorch", f"It holds no kernels. {EXPORT}")
    if head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head and CHAKRA.search(head):
        raise refuse_type("an execution trace (Chakra)", f"It holds no times. {EXPORT}")


def other_profiler(processes: Iterable[str], categories: Iterable[str]) -> str | None:
    """Return the sentences for a trace of another profiler in Chrome's format; None if it is unknown.

    ``processes`` are the names of the trace's processes and ``categories`` those of its events.
    """
    processes = list(processes)
    if any(TENSORFLOW_PROCESS.search(name) for name in processes):
        return f"This is a profile of TensorFlow, not of torch.profiler. {NSIGHT}"
    if any(XLA_PROCESS.search(name) for name in processes):
        return f"This is a profile of JAX or XLA, not of torch.profiler. {NSIGHT}"
    if any(BROWSER_CATEGORY.search(category) for category in categories):
        return f"This is a recording of the Chrome browser, not of torch.profiler. {EXPORT}"
    return None


def _is_perfetto(head: bytes) -> bool:
    """Whether ``head`` begins with two packets of a Perfetto trace, one directly after the other."""
    at = 0
    for _ in range(2):
        if at >= len(head) or head[at] != PACKET:
            return False
        length, shift = 0, 0
        at += 1
        while at < len(head) and shift < 35:
            byte = head[at]
            length, shift, at = length | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        packet = head[at : at + length]
        if not 0 < length <= LONGEST_PACKET or (b"\x00" not in packet and packet.isascii() and packet.decode().isprintable()):
            return False
        at += length
    return True
