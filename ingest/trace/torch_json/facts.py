"""Facts of a trace: devices, versions, ranks, and the problems found while reading it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.capture.devices import UUIDS_KEY
from sawtooth.ingest.decode import MAX_TIME_NS, MICROSECOND_NS, NULL, integers, small_integers
from sawtooth.ingest.errors import ImportDiagnostic, SourceError
from sawtooth.ingest.trace.other_profiles import other_profiler
from sawtooth.ingest.trace.source import COMMON_SENTENCES, MAX_DEVICES, TABLES, Facts
from sawtooth.ingest.trace.torch_json.begin_end_events import pair_edges
from sawtooth.ingest.trace.torch_json.cuspy import samples
from sawtooth.ingest.trace.torch_json.device_problems import mixed_contexts, unread_device
from sawtooth.ingest.trace.torch_json.tables import TorchTrace
from sawtooth.ingest.trace.torch_json.text.blocks import EXAMPLE_BYTES
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS
from sawtooth.ingest.trace.torch_json.text.repair import REPAIRS
from sawtooth.ingest.trace.torch_json.vendor import find_vendor

FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops")
KEYS_WITH_COLUMNS = {
    "deviceProperties",
    "baseTimeNanoseconds",
    "trace_id",
    "host_name",
    "schemaVersion",
    "displayTimeUnit",
    *FLAGS,
}
MAX_METADATA_BYTES = 8 << 20  # Size of the stored metadata. The process groups of 10,000 ranks take some MB.
MAX_TEXT = 1000  # Characters. Longer names of hosts and versions are cut.
# Faults of events without usable times, in words, by the key of the note.
TIME_FAULTS = {
    "time_missing": "no readable ts or dur",
    "time_zero": "start and duration 0",
    "duration_negative": "a negative duration",
    "duration_absurd": "a duration of more than 7 days",
}
DEVICE_FIELDS = {
    "memory_bytes": ("totalGlobalMem",),
    "compute_major": ("computeMajor",),
    "compute_minor": ("computeMinor",),
    "sms": ("numSms", "maxComputeUnits"),
    "warp_size": ("warpSize",),
    "max_threads_per_sm": ("maxThreadsPerMultiprocessor",),
    "registers_per_sm": ("regsPerMultiprocessor",),
    "shared_memory_per_sm_bytes": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
}
# The severity and the sentence of each note, by key.
SENTENCES = COMMON_SENTENCES | {
    "time_missing": ("data_loss", "Events without a readable ts or dur were left out."),
    "time_zero": ("data_loss", "Events with start 0 and duration 0, which torch 2.12 writes for lost events, were left out."),
    "duration_negative": ("data_loss", "Events with a negative duration were left out."),
    "duration_absurd": (
        "data_loss",
        "Events that claim to last more than 7 days were left out. CUPTI writes them if it did not record an end.",
    ),
    "event_unreadable": ("data_loss", "Events that are not valid JSON, even after repair, were left out."),
    "event_deep": ("data_loss", "Events with too deeply nested brackets were left out."),
    "event_cut": ("data_loss", "The last event was cut off and left out."),
    "edge_unmatched": ("data_loss", "Begins without an end, or ends without a begin, were left out."),
    "name_missing": ("info", "Events without a name are called (unnamed)."),
    "metadata_large": ("data_loss", "Very large parts of the metadata, which no profiler writes, were left out."),
    "metadata_repaired": ("info", "The part before the events was not valid JSON and was repaired."),
    "tail": ("info", "Text after the end of the trace was ignored."),
    "tail_long": ("info", "A very long text after the events was ignored."),
    "second_events": ("data_loss", "A second traceEvents list was ignored."),
    "pm_sampling": (
        "info",
        "The GPU's counters were sampled (PM sampling), which locks the clocks. Steps may take another time without sampling.",
    ),
    "signatures_left_out": (
        "data_loss",
        "Operators have too many different inputs. The inputs of later operators are not stored.",
    ),
    "no_gpu": (
        "info",
        "The trace has no GPU operation, because it was recorded without a GPU, or without ProfilerActivity.CUDA.",
    ),
    "no_host": (
        "info",
        "The trace has no host event, so the launches of GPU operations are not known. Add ProfilerActivity.CPU.",
    ),
    "gzip_truncated": (
        "data_loss",
        "The gzip file ends too early, because the copy or the job was stopped. The part before the end was read.",
    ),
    "gzip_damaged": ("data_loss", "The gzip data is damaged in the middle. The part before the damage was read."),
    "gzip_crc": ("data_loss", "The gzip checksum does not match, so the data may be damaged."),
    "gzip_tail": ("info", "Bytes after the end of the gzip data were ignored."),
    "events_cut": (
        "data_loss",
        "The file ends within its events. Mostly GPU events are missing, because torch.profiler writes them last.",
    ),
    "truncated": (
        "data_loss",
        "The trace ends before its closing bracket, because the job was stopped during writing. The part before the end was read.",
    ),
}
SENTENCES |= {f"mended_{kind}": ("info", sentence) for kind, sentence in REPAIRS.items()}


def facts(trace: TorchTrace, damage: list[str]) -> Facts:
    """Return the facts of a trace after reading; ``damage`` has the keys of gzip problems.

    Raises SourceError if no event is usable.
    """
    document = trace.document
    pair_edges(trace)
    if not any(trace.tables[key].rows for key in TABLES):
        raise _no_usable_event_error(trace)
    for key in damage:
        document.note(key, "")
    gzip_cut = "gzip_truncated" in damage or "gzip_damaged" in damage
    truncated = document.truncated or gzip_cut
    if truncated:
        document.note("truncated", "")
    # An open list alone does not mean missing events, because some writers never close the list.
    if not document.closed and (gzip_cut or document.notes["event_cut"]):
        document.note("events_cut", "")
    base = int(integers([document.metadata.get("baseTimeNanoseconds", NULL)])[0])
    return Facts(
        base_ns=base if abs(base) < MAX_TIME_NS else None,  # A larger base is damaged, and sums with it exceed 64 bits.
        tolerance_ns=MICROSECOND_NS if trace.whole_microseconds else 0,
        truncated=truncated,
        recording=_recording_columns(trace),
        devices=list(device_rows(document.metadata.get("deviceProperties"), document.metadata.get(UUIDS_KEY))),
        shapes=shape_columns(trace.ids["shapes"]),
        diagnostics=lambda: diagnostics(trace),
        samples=samples(trace.tables["counters"]),
    )


def _no_usable_event_error(trace: TorchTrace) -> SourceError:
    """Return the error for a trace whose events are all of other kinds, or have no times."""
    without_times = ", ".join(
        f"{what} ({count:,})" for key, what in TIME_FAULTS.items() if (count := trace.document.notes[key])
    )
    if without_times:
        return SourceError("E-NOEV", f"No event has valid times. They have {without_times}. Record the trace again.")
    if (error := other_profiler(trace.process_names.values(), trace.other)) is not None:
        return error
    kinds = ", ".join(f"{key.strip() or 'no category'} ({count:,})" for key, count in trace.other.most_common(4))
    content = kinds or "only names of processes and threads"
    sentence = f"The file has no event of a kind that torch.profiler writes, but {content}. Add a torch.profiler trace."
    return SourceError("E-NOEV", sentence)


PHASES = {  # The keys are the phases of Chrome's trace format.
    "s": "Starts of arrows between events", "t": "Steps of arrows between events", "f": "Ends of arrows between events", "C": "Counters",
    "b": "Starts of asynchronous events", "n": "Marks in asynchronous events", "e": "Ends of asynchronous events", "i": "Instant marks",
    "I": "Instant marks", "N": "Objects made", "O": "Snapshots of objects", "D": "Objects destroyed", "R": "Marks of a page's loading",
    "P": "Samples", "v": "Memory dumps", "V": "Memory dumps", "c": "Clock synchronization marks", "(": "Contexts entered", ")": "Contexts left",
    "E": "Ends without a beginning", "B": "Beginnings without an end",
}  # fmt: skip


def diagnostics(trace: TorchTrace) -> Iterator[ImportDiagnostic]:
    """Yield the rows of table ``diagnostics``."""
    document, tables = trace.document, trace.tables
    notes = dict(document.notes)
    yield from mixed_contexts(trace.contexts)
    if not tables["gpu"].rows and (unread := unread_device(trace.process_names, trace.other)) is not None:
        yield unread
    elif not tables["gpu"].rows:
        notes["no_gpu"] = 1
    if not tables["ops"].rows and not tables["calls"].rows:
        notes["no_host"] = 1
    for key, count in sorted(notes.items()):
        severity, sentence = SENTENCES[key]
        example = document.examples.get(key, "")[:EXAMPLE_BYTES] or None
        yield ImportDiagnostic(key, severity, sentence, count, example)
    for key, count in sorted((+trace.other).items()):  # ``+`` drops counts of 0.
        sentence = f"{event_name(key)} are not stored, because no screen uses them."
        yield ImportDiagnostic(f"not_stored_{key.replace(' ', '_')[:60]}", "info", sentence, count)


def event_name(key: str) -> str:
    """Return a readable name of events that are not stored, by category or phase (Chrome's ``ph``)."""
    if not key.startswith("ph "):
        return f"Events of the category “{key}”"
    phase = key[3:]
    return PHASES.get(phase, f"Events of Chrome's kind “{phase}”")


def device_rows(devices: Any, uuids: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of table ``devices``, from deviceProperties and the capture helper's UUIDs."""
    uuid_by_device = uuids if isinstance(uuids, dict) else {}
    for index, device in enumerate(devices[:MAX_DEVICES] if isinstance(devices, list) else []):
        if not isinstance(device, dict):
            continue
        number = _small_integer(device.get("id"))
        row: dict[str, Any] = {
            "device": index if number is None else number,
            "name": str(device["name"]) if device.get("name") else None,
        }
        row["uuid"] = _text(uuid_by_device.get(str(row["device"])))
        for column, keys in DEVICE_FIELDS.items():
            read = _integer if column.endswith("_bytes") else _small_integer
            row[column] = next((value for key in keys if (value := read(device.get(key))) is not None), None)
        yield row


def shape_columns(shapes: dict[tuple[bytes, bytes], int]) -> dict[str, NDArray[np.int64]]:
    """Return grid and block sizes by shape id."""
    columns = {f"{unit}_{axis}": np.full(len(shapes), NULL) for unit in ("grid", "block") for axis in "xyz"}
    for texts, number in shapes.items():
        for unit, text in zip(("grid", "block"), texts, strict=True):
            try:
                sizes = msgspec.json.decode(text) if text else None
            except DECODE_ERRORS:
                sizes = None
            if isinstance(sizes, list) and len(sizes) == 3:
                for axis, value in zip("xyz", small_integers(sizes), strict=True):
                    columns[f"{unit}_{axis}"][number] = value
    return columns


def _recording_columns(trace: TorchTrace) -> dict[str, Any]:
    metadata = trace.document.metadata
    job = metadata.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    default = False if "schemaVersion" in metadata else None  # Traces without a schema version do not record the flags.
    flags: dict[str, bool | None] = {key: bool(metadata[key]) if key in metadata else default for key in FLAGS}
    tables = trace.tables
    recorded = {
        "record_shapes": trace.ids["signatures"],
        "with_stack": tables["python"].rows,
        "profile_memory": tables["memory"].rows,
    }
    flags |= {key: True for key, value in recorded.items() if value}
    return {
        "vendor": find_vendor(trace),
        "host": _text(metadata.get("host_name")),
        "rank": _small_integer(job.get("rank")),
        "world_size": _small_integer(job.get("world_size")),
        "backend": _text(job.get("backend")),
        "nccl_version": _text(job.get("nccl_version")),
        "trace_id": _text(metadata.get("trace_id")),
        "torch_version": _text(metadata.get("torch_version") or metadata.get("pytorch_version")),
        "runtime_version": _text(metadata.get("cuda_runtime_version", metadata.get("hip_runtime_version"))),
        "driver_version": _text(metadata.get("cuda_driver_version", metadata.get("hip_driver_version"))),
        "profiler_version": _text(metadata.get("cupti_version", metadata.get("roctracer_version"))),
        **flags,
        "metadata": _limited_metadata(trace),
    }


def _limited_metadata(trace: TorchTrace) -> str:
    """Return the trace's metadata as JSON, without its largest values if it is too large."""
    metadata = {key: value for key, value in trace.document.metadata.items() if key not in KEYS_WITH_COLUMNS}
    sizes = {key: len(msgspec.json.encode(value)) for key, value in metadata.items()}
    total = sum(sizes.values())
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total <= MAX_METADATA_BYTES:
            break
        total -= sizes[key]
        del metadata[key]
        trace.document.note("metadata_large", key)
    return msgspec.json.encode(metadata).decode()


def _integer(value: Any) -> int | None:
    number = int(integers([value])[0])
    return None if number == NULL else number


def _small_integer(value: Any) -> int | None:
    number = int(small_integers([value])[0])
    return None if number == NULL else number


def _text(value: Any) -> str | None:
    return None if value is None else (value if isinstance(value, str) else str(value))[:MAX_TEXT]
