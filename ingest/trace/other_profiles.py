"""Names of profiles that other tools write, so that a refusal says what to record instead.

``refuse_other_profile`` knows files without trace events, ``other_profiler`` traces in Chrome's format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sawtooth.ingest.dumps.flight_recorder import is_flight_recorder
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.source import EXPORT, refuse_type

NSIGHT = (
    "Record the job with nsys profile -t cuda,nvtx -o run COMMAND. Then use the file of nsys export --type sqlite run.nsys-rep."
)
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # control characters that no text has
MEMORY_TIMELINE = re.compile(rb"\s*\[\s*\[\s*\d{6,}\s*[,\]]")  # two lists: times in µs since 1970, and sizes by category
CHAKRA = re.compile(rb'"schema"\s*:\s*"[^"]*chakra', re.IGNORECASE)
ROCPROFILER = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')
LONGEST_PACKET = 1 << 20  # bytes; the first packets of a Perfetto trace are descriptions of clocks and processes
PACKET = 0x0A  # key of a Perfetto trace's only field, a packet: number 1, with a length
LENGTH_BITS = 35  # more than a length of LONGEST_PACKET needs
# Names of processes in the traces of TensorFlow's and XLA's profilers. TensorFlow's come first, because some match both.
PROCESSES = (
    (re.compile(r"/job:\w+/replica:|/device:\w+:\d+ (Compute|Tensors)|\bstream:all\b"), "a profile of TensorFlow"),
    (re.compile(r"^/(device|host):"), "a profile of JAX or XLA"),
)
BROWSER_CATEGORY = re.compile(r"devtools\.timeline|\b(blink|v8|cc|viz|toplevel|loading|netlog)\b")


def refuse_other_profile(head: bytes, name: str) -> None:
    """Raise SourceError if ``head`` (the first uncompressed bytes) is that of another tool's profile.

    Binary profiles are recognized by ``name`` if their content is not enough.
    """
    name = name.lower().removesuffix(".gz")
    binary = BINARY.search(head[:1024]) is not None
    if binary and name.endswith(".xplane.pb"):
        raise refuse_type("a profile of JAX or TensorFlow (XPlane)", NSIGHT)
    if binary and (name.endswith((".pftrace", ".perfetto-trace")) or _is_perfetto(head)):
        raise refuse_type("a binary Perfetto trace", f"PyTorch writes one if the path ends in .pftrace. {EXPORT}")
    if is_flight_recorder(head):
        raise refuse_type("a dump of NCCL's flight recorder", "Read it with sawtooth collectives FILE….")
    if MEMORY_TIMELINE.match(head):
        raise refuse_type("a memory timeline of PyTorch", f"It holds no kernels. {EXPORT}")
    if head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head and CHAKRA.search(head):
        raise refuse_type("an execution trace (Chakra)", f"It holds no times. {EXPORT}")

    if ROCPROFILER.match(head):
        raise refuse_type("a result of rocprofv3", f"It holds no steps and no operators. {EXPORT}")


def other_profiler(processes: Iterable[str], categories: Iterable[str]) -> SourceError | None:
    """Return the refusal of another profiler's trace in Chrome's format; None if the profiler is unknown.

    ``processes`` are the names of the trace's processes and ``categories`` those of its events.
    """
    processes = list(processes)
    for process, what in PROCESSES:
        if any(process.search(name) for name in processes):
            return refuse_type(what, NSIGHT)
    if any(BROWSER_CATEGORY.search(category) for category in categories):
        return refuse_type("a recording of the Chrome browser", EXPORT)
    return None


def _is_perfetto(head: bytes) -> bool:
    """Return whether ``head`` begins with two packets of a Perfetto trace, one directly after the other."""
    at = 0
    for _ in range(2):
        if at >= len(head) or head[at] != PACKET:
            return False
        length, shift = 0, 0
        at += 1
        while at < len(head) and shift < LENGTH_BITS:
            byte = head[at]
            length, shift, at = length | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        if not 0 < length <= LONGEST_PACKET:
            return False
        at += length
    return True
