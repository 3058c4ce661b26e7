"""The host's events: NVTX ranges, calls of CUDA libraries, CUDA API calls, and profiler overhead.

PyTorch's emit_nvtx writes each operator as a range called ``aten::mm, seq = 3, op_id = 7, sizes = [[8, 8], [8, 8]]``. These ranges
become operators. Ranges in the domains of NVIDIA's libraries become operators too. All other ranges become annotations, like the ranges
of record_function.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np

from sawtooth.ingest.decode import I64, NULL
from sawtooth.ingest.trace.nsight.trace import NsightTrace, column
from sawtooth.ingest.trace.spool import Columns

RANGE_TYPES = frozenset((59, 60, 70, 71))  # These event types are push/pop and start/end ranges, live and imported.
DOMAIN_TYPE = 75  # The text of an event of this type names a domain.
LIBRARIES = {
    "nccl",
    "cccl",
    "cub",
    "thrust",
    "cublas",
    "cublaslt",
    "cudnn",
    "cufft",
    "cusolver",
    "cusparse",
    "cutensor",
    "dali",
    "tensorrt",
}
PAYLOADS = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
MAX_PAYLOAD_CHARACTERS = 1000  # Longer payloads are cut, because a person reads them next to the range.
MAX_PAYLOADS = 1 << 18  # Further different payloads are not stored, to limit memory.
SYSTEM_CALL = "{} (operating system)"
MIN_SYSTEM_CALL_NS = 10_000  # Shorter calls are not stored. They explain no wait, and there are thousands per second.
# Cached meanings of texts. emit_nvtx numbers each range, so its texts never repeat and would fill the memory.
MAX_CACHED_MEANINGS = 1 << 16
# The column with the names of calls, for each table. MPI's calls are treated like NCCL's ranges.
LIBRARY_TABLES = {
    **dict.fromkeys(("CUBLAS_EVENTS", "CUDNN_EVENTS"), "nameId"),
    **dict.fromkeys(("MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"), "textId"),
}
# Matches the texts of getNvtxStr in PyTorch's torch/csrc/autograd/profiler_util.
EMITTED_TEXT = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = (?P<op>\d+))?(?:, sizes = (?P<sizes>\[.{0,8192}?\]))?(?:, input_op_ids = .*)?"
)
# Matches the names of operators. All other ranges from emit_nvtx are annotations (record_function).
OPERATOR_NAME = re.compile(r"[a-z_0-9]+::\S+|autograd::.*|\w+Backward\w*|\w*AccumulateGrad|detach_?")
# Matches the API version in a name: cudaMemcpyAsync_v3020 exists since version 3.2.
VERSION_SUFFIX = re.compile(r"_v\d+$|_ptsz$|_ptds$")
# The kind of synchronization of each call. Names are used because the numbers of calls differ between versions of exports.
WAIT_CALLS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cuStreamSynchronize": "Stream Sync",
    "cudaStreamWaitEvent": "Stream Wait Event",
    "cuStreamWaitEvent": "Stream Wait Event",
    "cudaEventSynchronize": "Event Sync",
    "cuEventSynchronize": "Event Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cuCtxSynchronize": "Context Sync",
}
OVERHEADS = {
    2: "Driver Compiler",
    3: "Buffer Flush",
    4: "Instrumentation",
    5: "Resource",
    6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading",
    8: "Command Buffer Full",
}


class NvtxRange(NamedTuple):
    """The parts of a range's text.

    A ``signature_id`` of -1 means no inputs. An ``extra`` of -1 means no further facts. A ``sequence`` of NULL means no sequence number.
    """

    name_id: int
    annotation: bool
    sequence: int = NULL
    signature_id: int = -1
    extra: int = -1


def read_ranges(trace: NsightTrace) -> None:
    """Read NVTX ranges and the calls of libraries into table ops."""
    domains = _domains(trace)
    meanings: dict[tuple[str, int, str], NvtxRange] = {}
    columns = ("eventType", "text", "textId", "globalTid", "domainId", "jsonText", "jsonTextId", *PAYLOADS)
    for batch, start, dur in trace.batches("NVTX_EVENTS", columns, only=RANGE_TYPES):
        ranges = []
        if len(meanings) > MAX_CACHED_MEANINGS:
            meanings.clear()
        for _, _, _, text, text_id, _, domain, *payload in batch:
            title = text if isinstance(text, str) else trace.text(text_id)
            key = (title, domain if isinstance(domain, int) else 0, _payload(trace, *payload))
            ranges.append(meanings[key] if key in meanings else meanings.setdefault(key, _meaning(trace, *key, domains)))
        _add(trace, ranges, trace.threads(column(batch, 3)), start, dur)
    for table, called in LIBRARY_TABLES.items():
        for batch, start, dur in trace.batches(table, (called, "globalTid")):
            plain = [NvtxRange(trace.name(trace.text(row[2])), False) for row in batch]
            _add(trace, plain, trace.threads(column(batch, 1)), start, dur)


def _add(trace: NsightTrace, ranges: list[NvtxRange], threads: Any, start: I64, dur: I64) -> None:
    name_id, annotation, sequence, signature_id, extra = np.array(ranges, np.int64).reshape(-1, len(NvtxRange._fields)).T
    columns = {
        "annotation": annotation.astype(bool),
        "name_id": name_id.astype(np.int32),
        "thread_id": threads,
        "start": start,
        "dur": dur,
        "sequence_number": sequence,
        "signature_id": signature_id.astype(np.int32),
        "extra": extra.astype(np.int32),
    }
    trace.add("ops", columns)


def _payload(trace: NsightTrace, text: Any, text_id: Any, *numbers: Any) -> str:
    """Return a range's payload, which is a number or a text besides the name; "" without one."""
    payload = text if isinstance(text, str) else trace.text(text_id)
    return payload or next((str(number) for number in numbers if isinstance(number, int | float) and number != NULL), "")


def _meaning(trace: NsightTrace, text: str, domain: int, payload: str, domains: dict[int, str]) -> NvtxRange:
    match = EMITTED_TEXT.fullmatch(text)
    if match and match["name"] != text:
        operator = OPERATOR_NAME.fullmatch(match["name"]) is not None
        sequence = int(match["seq"]) if match["seq"] and operator else NULL
        signature = _signature(trace, match["sizes"]) if match["sizes"] else -1
        return NvtxRange(trace.name(match["name"]), not operator, sequence, signature)
    title = domains.get(domain, "")
    extra = -1
    extras = trace.ids["extras"]
    shortened = payload[:MAX_PAYLOAD_CHARACTERS] if len(extras) < MAX_PAYLOADS else ""
    if details := {key: value for key, value in (("NVTX domain", title), ("NVTX payload", shortened)) if value}:
        extra = extras.setdefault((json.dumps(details),), len(extras))
    return NvtxRange(trace.name(text), title.lower() not in LIBRARIES, extra=extra)


def _signature(trace: NsightTrace, sizes: str) -> int:
    try:
        dims = json.dumps(json.loads(sizes), separators=(",", ":"))
    except (ValueError, RecursionError):
        return -1
    signatures = trace.ids["signatures"]
    return signatures.setdefault((dims, None, None, None), len(signatures))


def _domains(trace: NsightTrace) -> dict[int, str]:
    names: dict[int, str] = {}
    for batch in trace.database.rows("NVTX_EVENTS", ("eventType", "text", "textId", "domainId")):
        for kind, text, text_id, domain in batch:
            if kind == DOMAIN_TYPE and isinstance(domain, int):
                names[domain] = (text if isinstance(text, str) else trace.text(text_id))[:200]
        if other := sum(row[0] not in RANGE_TYPES and row[0] != DOMAIN_TYPE for row in batch):
            trace.note("not_ranges", "", other)
    return names


def read_calls(trace: NsightTrace) -> None:
    """Read calls of the CUDA runtime and driver into table calls."""
    names: dict[Any, int] = {}
    waits: dict[Any, str] = {}
    for batch, start, dur in trace.batches("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId", "globalTid", "correlationId")):
        for number in {row[2] for row in batch} - names.keys():
            name = VERSION_SUFFIX.sub("", trace.text(number))
            names[number] = trace.name(name)
            if name in WAIT_CALLS:
                waits[number] = WAIT_CALLS[name]
        thread = column(batch, 1)
        columns: Columns = {
            "name_id": np.array([names[row[2]] for row in batch], np.int32),
            "thread_id": trace.threads(thread),
            "start": start,
            "dur": dur,
            "correlation": trace.correlations(column(batch, 2), thread),
        }
        once = _without_inner_copies(columns)
        trace.add("calls", {name: values[once] for name, values in columns.items()})
        for row, correlation in zip(batch, columns["correlation"].tolist(), strict=True):
            if row[2] in waits:
                trace.waits[correlation] = waits[row[2]]


def _without_inner_copies(calls: Columns) -> Any:
    """Return a mask that removes copies.

    Some exports store each call twice, with the copy inside the original.
    """
    end = calls["start"] + calls["dur"]
    order = np.lexsort((-calls["dur"], calls["start"], calls["correlation"], calls["name_id"], calls["thread_id"]))
    before, after = order[:-1], order[1:]
    inner = (end[after] <= end[before]) & (calls["start"][after] >= calls["start"][before])
    for key in ("thread_id", "name_id", "correlation"):
        inner &= calls[key][after] == calls[key][before]
    is_kept = np.ones(len(end), bool)
    is_kept[after[inner]] = False
    return is_kept


def read_system_calls(trace: NsightTrace) -> None:
    """Read operating-system calls of the threads with ranges or CUDA calls into table python.

    These calls show what the host did between ranges and CUDA calls. Other threads are not read, because they poll and sleep all the time.
    """
    for batch, start, dur in trace.batches("OSRT_API", ("nameId", "globalTid")):
        thread = column(batch, 1)
        keep = np.flatnonzero((dur >= MIN_SYSTEM_CALL_NS) & trace.has_threads(thread))
        names = [trace.name(SYSTEM_CALL.format(trace.text(batch[i][2]) or "call")) for i in keep.tolist()]
        columns = {"name_id": np.array(names, np.int32), "thread_id": trace.threads(thread[keep])}
        trace.add("python", {**columns, "start": start[keep], "dur": dur[keep]})


def read_overheads(trace: NsightTrace) -> None:
    """Read the time of the profiler, of lazy loading and of full queues into table overheads."""
    for table in ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"):
        for batch, start, dur in trace.batches(table, ("overheadType", "nameId", "globalTid")):
            names = [trace.name(OVERHEADS.get(row[2]) or trace.text(row[3]) or "Profiler") for row in batch]
            columns = {"name_id": np.array(names, np.int32), "thread_id": trace.threads(column(batch, 2))}
            trace.add("overheads", {**columns, "start": start, "dur": dur})
