"""Facts of an export: time, host, GPUs and version, and what it does not contain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.decode import MAX_TIME_NS, NULL, small_integers
from sawtooth.ingest.errors import ImportDiagnostic, SourceError
from sawtooth.ingest.trace.nsight.database import HOW_TO_EXPORT
from sawtooth.ingest.trace.nsight.gpu import DeviceNumbering
from sawtooth.ingest.trace.nsight.samples import read_samples
from sawtooth.ingest.trace.nsight.trace import PART_MASK, PROCESS_SHIFT, NsightTrace
from sawtooth.ingest.trace.source import COMMON_SENTENCES, MAX_DEVICES, MIN_UNIX_NS, TABLES, Facts

DEVICE_COLUMNS = (
    "id",
    "cuDevice",
    "name",
    "totalMemory",
    "computeMajor",
    "computeMinor",
    "smCount",
    "threadsPerWarp",
    "maxWarpsPerSm",
    "maxRegistersPerSm",
    "maxShmemPerSm",
)
SYSTEM_FACTS = {"Hostname": "host", "NvDriverVersion": "driver_version"}
# Other values are not stored, because exports contain environment variables, which may contain secrets.
STORED_KEYS = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
IGNORED_TABLES = {  # The content of each table, in words.
    "SCHED_EVENTS": "switches of threads",
    "COMPOSITE_EVENTS": "samples of the CPU",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "allocations",
}
SENTENCES = COMMON_SENTENCES | {
    "time_open": (
        "data_loss",
        "Events without a start or an end, such as ranges still open when the recording stopped, were left out.",
    ),
    "time_negative": ("data_loss", "Events that end before they start were left out."),
    "time_absurd": ("data_loss", "Events that claim to last more than 7 days were left out."),
    "not_ranges": ("info", "NVTX marks, categories and names are not stored, because Sawtooth does not use them."),
    "samples_many": (
        "data_loss",
        "Samples of GPU metrics are not stored, because there are too many. Record with a lower --gpu-metrics-frequency.",
    ),
    "graphs_whole": (
        "info",
        "CUDA graphs were traced as a whole, so their kernels are not known. Record with nsys profile --cuda-graph-trace=node.",
    ),
    "no_gpu": ("info", "The export has no GPU operation. Record with nsys profile --trace=cuda,nvtx."),
    "no_host": (
        "info",
        "The export has no CUDA call and no range, so the launches of GPU operations are not known.",
    ),
    "no_ranges": (
        "info",
        "The export has no NVTX range. Mark steps and phases with torch.cuda.nvtx.range, and record with nsys profile --trace=cuda,nvtx.",
    ),
    "no_operators": (
        "info",
        "Nsight Systems records no PyTorch operators. Run the steps under torch.autograd.profiler.emit_nvtx(), or record with torch.profiler.",
    ),
    "no_shapes": (
        "info",
        "The shapes of inputs are not recorded, so FLOPs and advice on sizes are missing. Record them with emit_nvtx(record_shapes=True) or torch.profiler.",
    ),
    "processes": ("info", "The export has several processes. The steps of the process with the most marked steps are used."),
}


def facts(trace: NsightTrace, numbering: DeviceNumbering) -> Facts:
    """Return the facts of the export.

    Raises SourceError if the export has no usable events.
    """
    if not any(trace.tables[key].rows for key in TABLES):
        raise _no_events_error(trace)
    _name_threads(trace)
    system = _pairs(trace, "TARGET_INFO_SYSTEM_ENV", tuple(SYSTEM_FACTS))
    metadata = _pairs(trace, "META_DATA_EXPORT", STORED_KEYS)
    return Facts(
        base_ns=_base(trace),
        tolerance_ns=0,
        truncated=False,
        recording={
            "vendor": "nvidia",
            **{SYSTEM_FACTS[key]: value for key, value in system.items()},
            "profiler_version": " ".join(filter(None, ("Nsight Systems", metadata.get("EXPORT_PRODUCT_VERSION")))),
            "record_shapes": bool(trace.ids["signatures"]),
            **dict.fromkeys(("profile_memory", "with_stack", "with_modules", "with_flops"), False),
            "metadata": json.dumps(metadata),
        },
        devices=list(_devices(trace, numbering)),
        shapes=trace.shapes(),
        diagnostics=lambda: _diagnostics(trace),
        samples=read_samples(trace, numbering.device_of),
    )


def _no_events_error(trace: NsightTrace) -> SourceError:
    if timeless := sum(trace.notes[f"time_{key}"] for key in ("open", "negative", "absurd")):
        return SourceError(
            "E-NOEV",
            f"None of the {timeless:,} events of this Nsight Systems export has valid times. {HOW_TO_EXPORT}",
        )
    return SourceError(
        "E-NOEV",
        "The Nsight Systems export has no GPU operation, CUDA call or NVTX range. Record with nsys profile --trace=cuda,nvtx.",
    )


def _base(trace: NsightTrace) -> int | None:
    """Return the Unix time of the export's time 0; None if it is unknown or the times are Unix times."""
    largest = max(table.last for table in trace.tables.values() if table.last is not None)
    for batch in trace.database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        began = batch[0][0]
        if isinstance(began, int) and 0 < began < MAX_TIME_NS // 2 and largest < MIN_UNIX_NS:
            shift = _pairs(trace, "META_DATA_EXPORT", ("EXPORT_PARAM_TIME_SHIFT",)).get("EXPORT_PARAM_TIME_SHIFT", "0")
            return began - (int(shift) if shift.lstrip("-").isdecimal() and len(shift) < 19 else 0)
    return None


def _pairs(trace: NsightTrace, table: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the values of ``keys`` from a table with the columns name and value, cut to 200 characters."""
    batches = trace.database.rows(table, ("name", "value"))
    return {name: value[:200] for batch in batches for name, value in batch if name in keys and isinstance(value, str)}


def _devices(trace: NsightTrace, numbering: DeviceNumbering) -> Iterator[dict[str, Any]]:
    """Yield the rows of table ``devices``, by the numbers that GPU operations use."""
    seen: set[int] = set()
    for batch in trace.database.rows("TARGET_INFO_GPU", DEVICE_COLUMNS):
        for row in batch[:MAX_DEVICES]:
            values = [None if v == NULL else int(v) for v in small_integers([*row[:2], *row[4:]])]
            gpu, cuda, major, minor, sms, warp, warps, registers, shared = values
            default = cuda if cuda is not None and not numbering.ambiguous else gpu
            device = numbering.cuda_numbers.get(gpu if gpu is not None else -1, default)
            if device is None or device in seen:
                continue
            seen.add(device)
            yield {
                "device": device,
                "name": row[2][:200] if isinstance(row[2], str) else None,
                "memory_bytes": row[3] if isinstance(row[3], int) and row[3] > 0 else None,
                "compute_major": major,
                "compute_minor": minor,
                "sms": sms,
                "warp_size": warp,
                "max_threads_per_sm": warp * warps if warp and warps and warp * warps < 1 << 31 else None,
                "registers_per_sm": registers,
                "shared_memory_per_sm_bytes": shared,
            }


def _name_threads(trace: NsightTrace) -> None:
    """Read the names of the threads and processes that occur in the tables."""
    threads, pids = trace.ids["threads"], {pid for pid, _ in trace.ids["threads"]}
    for batch in trace.database.rows("ThreadNames", ("globalTid", "nameId")):
        for number, name in batch:
            key = (str((number >> PROCESS_SHIFT) & PART_MASK), str(number & PART_MASK)) if isinstance(number, int) else ("", "")
            if key in threads and (text := trace.text(name)):
                trace.thread_names[key] = text[:200]
    for batch in trace.database.rows("PROCESSES", ("pid", "name")):
        trace.process_names |= {str(pid): name[:200] for pid, name in batch if str(pid) in pids and isinstance(name, str)}


def _diagnostics(trace: NsightTrace) -> Iterator[ImportDiagnostic]:
    """Yield the rows of table ``diagnostics``."""
    tables, notes = trace.tables, dict(trace.notes)
    missing = {
        "no_gpu": not tables["gpu"].rows,
        "no_host": not tables["ops"].rows and not tables["calls"].rows,
        "no_ranges": not tables["ops"].rows,
        "no_operators": not any("::" in name for name in trace.ids["names"]) or not tables["ops"].rows,
        "no_shapes": not trace.ids["signatures"],
    }
    notes |= {key: 1 for key, is_missing in missing.items() if is_missing}
    processes = len({pid for pid, _ in trace.ids["threads"]})
    if processes > 1:
        notes["processes"] = processes
    for key, count in sorted(notes.items()):
        severity, sentence = SENTENCES[key]
        example = trace.examples.get(key, "")[:200] or None
        yield ImportDiagnostic(key, severity, sentence, count, example)
    for table, content in IGNORED_TABLES.items():
        if count := trace.database.count(table):
            sentence = f"The export has {content}, which are not stored, because Sawtooth does not use them yet."
            yield ImportDiagnostic(f"not_stored_{table.lower()}", "info", sentence, count)
