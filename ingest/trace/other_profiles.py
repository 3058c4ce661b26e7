"""Recognize profiles of other tools, so that the error message can recommend what to record instead.

``refuse_other_profile`` recognizes files without trace events. ``other_profiler`` recognizes traces in Chrome's format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sawtooth.ingest.dumps.flight_recorder import is_flight_recorder
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.source import EXPORT_ADVICE, wrong_type_error

NSIGHT_ADVICE = (
    "Record the job with nsys profile -t cuda,nvtx -o run COMMAND. Then use the file of nsys export --type sqlite run.nsys-rep."
)
GPUS_ONLY = "Sawtooth reads only traces of GPUs. It reads telemetry of any accelerator as CSV."
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # Control characters that no text has.
NO_KERNELS = f"It has no kernels. {EXPORT_ADVICE}"
NO_TIMES = f"It has no times. {EXPORT_ADVICE}"
ONLY_SUMS = f"It has sums, but no times of single events. {EXPORT_ADVICE}"
HOST_ONLY = f"It has only the CPU's work. {EXPORT_ADVICE}"
# Patterns of the beginnings of files without trace events, with the name of the file's type and advice. The first match decides.
BEGINNINGS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (re.compile(rb"NVR\x00"), "a report of Nsight Compute", f"It has single kernels, not the run. {NSIGHT_ADVICE}"),
    (re.compile(rb"PERFILE2"), "a recording of Linux perf", HOST_ONLY),
    (re.compile(rb"memray\x00"), "a recording of memray", NO_KERNELS),
    (re.compile(rb"[\s\S]{12}\t[\s\S]{8}\x1a.brain\.Event:"), "an event file of TensorBoard", EXPORT_ADVICE),
    (re.compile(rb"\{[\x28\x29\xa8\xa9]"), "a profile of Python's cProfile", HOST_ONLY),
    (re.compile(rb"\n\x04\x08.\x10.(?:\n|\x12)"), "a profile in pprof's format, as JAX writes of its memory", NO_KERNELS),
    (
        re.compile(rb"\n[\s\S]{1,6}?(?:\x08.{1,2})?\x12.(?:/host:|/device:|Task Environment)"),
        "a profile of JAX or TensorFlow (XPlane)",
        NSIGHT_ADVICE,
    ),
    # The file has two lists (times in Unix µs, and sizes by category) or rows of a time in ns, an action and a size.
    (re.compile(rb"\s*\[\s*\[\s*-?\d{6,}\s*[,\]]"), "a memory timeline of PyTorch", NO_KERNELS),
    (re.compile(rb"\s*<html>\s*<head>[\s\S]{0,400}GPU Memory Timeline"), "a memory timeline of PyTorch", NO_KERNELS),
    (
        re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"'),
        "a result of rocprofv3",
        f"It has no steps and no operators. {EXPORT_ADVICE}",
    ),
    (
        re.compile(rb"\s*<\?xml[\s\S]{0,600}<svg[\s\S]{0,4000}(?:Flame ?[Gg]raph|FlameGraph|flamegraph|py-spy)"),
        "a flame graph",
        HOST_ONLY,
    ),
    (re.compile(rb"==\d+== (?:NVPROF|Profiling)"), "a summary of nvprof", NSIGHT_ADVICE),
    (re.compile(rb'"?Index"?,"?KernelName"?,"?gpu-id'), "a table of rocprof", EXPORT_ADVICE),
    (re.compile(rb"-{8}[- ]{0,4000}\n *Name  "), "a table of PyTorch's key_averages()", ONLY_SUMS),
    (re.compile(rb"-+ DeepSpeed Flops Profiler -"), "a summary of DeepSpeed's FLOPs profiler", ONLY_SUMS),
)
# Texts near the beginning of JSON objects without trace events, with the name of the file's type and advice.
OBJECTS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (re.compile(rb'"schema"\s*:\s*"[^"]*chakra|\[pytorch\|profiler\|execution_(?:trace|graph)\|', re.IGNORECASE), "an execution trace (Chakra)", NO_TIMES),
    (re.compile(rb"speedscope\.app/file-format-schema"), "a profile of speedscope, as py-spy writes", HOST_ONLY),
    (re.compile(rb'"preprocessedProfileVersion"'), "a profile of Firefox", HOST_ONLY),
    (re.compile(rb'\s*\{\s*"alloc_samples"\s*:'), "a profile of Scalene", ONLY_SUMS),
    (re.compile(rb'\s*\{"(?:CudaEvent|TraceProcessEvent|NvtxEvent|StringTable)"'), "a JSON export of Nsight Systems", "Use the file of nsys export --type sqlite run.nsys-rep."),
)  # fmt: skip
FRAME_NAME = re.compile(rb"[A-Za-z_]{2}")  # A stack frame has a name. A table with semicolons has numbers instead.
# One of these texts is near the beginning of a Chakra trace in binary form.
CHAKRA_NODES = re.compile(rb"is_cpu_op|aten::|comm_type|\d\.\d\.\d+-?(?:chakra|dev)?")
MAX_PACKET_BYTES = 1 << 20  # The first packets of a Perfetto trace describe clocks and processes, so they are smaller.
PACKET_KEY = 0x0A  # Protobuf key of a packet (field 1, with a length). A Perfetto trace has only this field.
LENGTH_BITS = 35  # At most this many bits of a length are read. MAX_PACKET_BYTES needs only 21.
# Names of processes in other profilers' traces. TensorFlow's names come before XLA's, because some match both.
PROCESSES = (
    (
        re.compile(r"/job:\w+/replica:|/device:\w+:\d+ (Compute|Tensors)|\bstream:all\b"),
        "a profile of TensorFlow",
        NSIGHT_ADVICE,
    ),
    (re.compile(r"^/(device|host):"), "a profile of JAX or XLA", NSIGHT_ADVICE),
    (re.compile(r"^(?:Ascend Hardware|CANN|AscendCL)$"), "a profile of Ascend's msprof", GPUS_ONLY),
    (re.compile(r"\b(?:HPU|Gaudi)\b"), "a profile of Habana's Gaudi", GPUS_ONLY),
)
BROWSER_CATEGORY = re.compile(r"devtools\.timeline|\b(blink|v8|cc|viz|toplevel|loading|netlog)\b")


def refuse_other_profile(head: bytes, name: str) -> None:
    """Raise SourceError if ``head`` (the first uncompressed bytes) is of another tool's profile.

    A binary profile without a known beginning is recognized by ``name``.
    """
    name = name.lower().removesuffix(".gz")
    binary = BINARY.search(head[:1024]) is not None
    if binary and name.endswith(".xplane.pb"):
        raise wrong_type_error("a profile of JAX or TensorFlow (XPlane)", NSIGHT_ADVICE)
    if binary and name.endswith(".ncu-rep"):
        raise wrong_type_error(*BEGINNINGS[0][1:])
    for pattern, what, advice in BEGINNINGS:
        if pattern.match(head):
            raise wrong_type_error(what, advice)
    if binary and name.endswith(".et") and CHAKRA_NODES.search(head[:4096]):
        raise wrong_type_error("an execution trace (Chakra)", NO_TIMES)
    if binary and (name.endswith((".pftrace", ".perfetto-trace")) or _is_perfetto(head)):
        raise wrong_type_error("a binary Perfetto trace", f"PyTorch writes one if the path ends in .pftrace. {EXPORT_ADVICE}")
    if _is_stack_list(head):
        raise wrong_type_error("a list of call stacks, as py-spy and perf write for flame graphs", HOST_ONLY)
    if is_flight_recorder(head):
        raise wrong_type_error("a dump of NCCL's flight recorder", "Read it with sawtooth collectives FILE….")
    if head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head:
        for pattern, what, advice in OBJECTS:
            if pattern.search(head):
                raise wrong_type_error(what, advice)


def other_profiler(processes: Iterable[str], categories: Iterable[str]) -> SourceError | None:
    """Return the error for another profiler's trace in Chrome's format; None if the profiler is unknown.

    ``processes`` are the names of the trace's processes. ``categories`` are the categories of its events.
    """
    processes, categories = list(processes), list(categories)
    for process, what, advice in PROCESSES:
        if any(process.search(name) for name in processes):
            return wrong_type_error(what, advice)
    if "FEE" in categories:
        return wrong_type_error("a trace of VizTracer", HOST_ONLY)
    if any(BROWSER_CATEGORY.search(category) for category in categories):
        return wrong_type_error("a recording of the Chrome browser", EXPORT_ADVICE)
    return None


def _is_stack_list(head: bytes) -> bool:
    """Return whether ``head`` begins with two lines of frames, separated by semicolons, and a count."""
    lines = [line.rstrip().rpartition(b" ") for line in head.split(b"\n", 2)[:2]]
    frames = [stack.rpartition(b";") for stack, _, count in lines if count.isdigit()]
    return len(frames) == 2 and all(outer and FRAME_NAME.search(inner) for outer, _, inner in frames)


def _is_perfetto(head: bytes) -> bool:
    """Return whether ``head`` begins with two packets of a Perfetto trace, one directly after the other."""
    offset = 0
    for _ in range(2):
        if offset >= len(head) or head[offset] != PACKET_KEY:
            return False
        length, shift = 0, 0
        offset += 1
        while offset < len(head) and shift < LENGTH_BITS:
            byte = head[offset]
            length, shift, offset = length | (byte & 0x7F) << shift, shift + 7, offset + 1
            if byte < 0x80:
                break
        if not 0 < length <= MAX_PACKET_BYTES:
            return False
        offset += length
    return True
