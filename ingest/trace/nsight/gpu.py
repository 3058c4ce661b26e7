"""The GPU's events: kernels, copies, memory sets, graphs traced as a whole, and synchronizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawtooth.ingest.decode import I64, NULL, small_integers
from sawtooth.ingest.trace.nsight.trace import PART_MASK, PROCESS_SHIFT, NsightTrace, column
from sawtooth.ingest.trace.spool import Columns

# The kinds of CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, in torch.profiler's words. The kinds of copies from 11 on are not
# CUPTI's: Nsight Systems adds them for unified memory.
COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
COPY_KINDS |= {11: "HtoD", 12: "DtoH", 13: "DtoD"}
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
NO_STREAM = (1 << 32) - 1
COMMON_COLUMNS = ("deviceId", "globalPid", "contextId", "streamId", "correlationId", "graphId", "graphNodeId")
KERNEL_COLUMNS = (
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
KERNEL_NAMES = ("demangledName", "shortName", "mangledName", "name")
STREAM_NUMBER_STEP = 1 << 16  # This is added to a stream's number if another stream of the GPU already has the number.


class DeviceNumbering:
    """Numbers of devices and streams that are unique in the whole file.

    Each process numbers its visible GPUs and its streams from 0. If two processes use one number for different GPUs, the host's own
    GPU numbers are used. If two processes or contexts use the same stream number on one GPU, the later stream gets another number.
    """

    def __init__(self, trace: NsightTrace) -> None:
        self.gpu_numbers: dict[tuple[int, int], int] = {}
        for batch in trace.database.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId")):
            pids, cudas, gpus = (small_integers([row[index] for row in batch]).tolist() for index in range(3))
            self.gpu_numbers |= {
                (pid, cuda): gpu for pid, cuda, gpu in zip(pids, cudas, gpus, strict=True) if NULL not in (cuda, gpu)
            }
        gpus_by_cuda: dict[int, set[int]] = {}
        for (_, cuda), gpu in self.gpu_numbers.items():
            gpus_by_cuda.setdefault(cuda, set()).add(gpu)
        self.ambiguous = any(len(gpus) > 1 for gpus in gpus_by_cuda.values())
        self.cuda_numbers = {} if self.ambiguous else {gpu: cuda for (_, cuda), gpu in self.gpu_numbers.items()}
        self._streams: dict[tuple[int, ...], int] = {}
        self._taken: set[tuple[int, int]] = set()

    def device_of(self, gpu: int) -> int | None:
        """Return the device number that operations use for the host's GPU ``gpu``; None for an unlisted GPU."""
        return self.cuda_numbers.get(gpu) if self.cuda_numbers else gpu

    def find(self, batch: list[tuple[Any, ...]]) -> tuple[I64, I64]:
        """Return device and stream of rows with start, end and the first four columns of COMMON_COLUMNS."""
        device = small_integers([row[2] for row in batch])
        device[device == NULL] = 0
        keys = np.column_stack([device, column(batch, 1), column(batch, 2), column(batch, 3)])
        distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
        numbers = np.array([self._device_and_stream(*row) for row in distinct.tolist()], np.int64)[inverse.reshape(-1)]
        return numbers[:, 0], numbers[:, 1]

    def _device_and_stream(self, device: int, process: int, context: int, stream: int) -> tuple[int, int]:
        if self.ambiguous:
            device = self.gpu_numbers.get(((process >> PROCESS_SHIFT) & PART_MASK, device), device)
        stream = 0 if stream in (NULL, NO_STREAM) else stream
        key = (device, process, context, stream)
        if key not in self._streams:
            number = stream
            while (device, number) in self._taken:
                number += STREAM_NUMBER_STEP
            self._taken.add((device, number))
            self._streams[key] = number
        return device, self._streams[key]


def read_kernels(trace: NsightTrace, numbering: DeviceNumbering) -> None:
    """Read kernels into table gpu."""
    for batch, start, dur in trace.batches("CUPTI_ACTIVITY_KIND_KERNEL", (*COMMON_COLUMNS, *KERNEL_NAMES, *KERNEL_COLUMNS)):
        name_index = 2 + len(COMMON_COLUMNS)
        shape_index = name_index + len(KERNEL_NAMES)
        name_slice, shape_slice = slice(name_index, shape_index), slice(shape_index, shape_index + 6)
        names = {numbers: _kernel_name(trace, numbers) for numbers in {row[name_slice] for row in batch}}
        registers = shape_slice.stop - 2  # ``column`` does not count start and end.
        static, dynamic = column(batch, registers + 1), column(batch, registers + 2)
        columns: Columns = {
            "name_id": np.array([names[row[name_slice]] for row in batch], np.int32),
            "shape": np.array([trace.shape(row[shape_slice]) for row in batch], np.int32),
            "registers_per_thread": small_integers(column(batch, registers).tolist()),
            "shared_memory_bytes": np.where((static == NULL) | (dynamic == NULL), NULL, static + dynamic),
        }
        _add(trace=trace, numbering=numbering, kind="kernel", batch=batch, times=(start, dur), own_columns=columns)


def _kernel_name(trace: NsightTrace, numbers: tuple[Any, ...]) -> int:
    return trace.name(next((text for number in numbers if (text := trace.text(number))), None))


def read_copies(trace: NsightTrace, numbering: DeviceNumbering) -> None:
    """Read copies and memory sets into table gpu, named as torch.profiler names them."""
    for batch, start, dur in trace.batches(
        "CUPTI_ACTIVITY_KIND_MEMCPY", (*COMMON_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind")
    ):
        bytes_index = 2 + len(COMMON_COLUMNS)
        names = {kinds: trace.name(_copy_name(*kinds)) for kinds in {row[bytes_index + 1 :] for row in batch}}
        columns: Columns = {
            "name_id": np.array([names[row[bytes_index + 1 :]] for row in batch], np.int32),
            "bytes": column(batch, bytes_index - 2),
        }
        _add(trace=trace, numbering=numbering, kind="memcpy", batch=batch, times=(start, dur), own_columns=columns)
    for batch, start, dur in trace.batches("CUPTI_ACTIVITY_KIND_MEMSET", (*COMMON_COLUMNS, "bytes", "memKind")):
        bytes_index = 2 + len(COMMON_COLUMNS)
        set_names = [trace.name(f"Memset ({MEMORY_KINDS.get(row[bytes_index + 1], 'Unknown')})") for row in batch]
        _add(
            trace=trace,
            numbering=numbering,
            kind="memset",
            batch=batch,
            times=(start, dur),
            own_columns={"name_id": np.array(set_names, np.int32), "bytes": column(batch, bytes_index - 2)},
        )


def _copy_name(kind: Any, source: Any, target: Any) -> str:
    """Return a name such as ``Memcpy HtoD (Pageable -> Device)``."""
    if kind in (11, 12, 13):
        return f"Memcpy {COPY_KINDS[kind]} (Managed -> Managed)"
    ends = (
        f" ({MEMORY_KINDS.get(source, 'Unknown')} -> {MEMORY_KINDS.get(target, 'Unknown')})"
        if source != NULL or target != NULL
        else ""
    )
    return f"Memcpy {COPY_KINDS.get(kind, 'Unknown')}{ends}"


def read_graphs(trace: NsightTrace, numbering: DeviceNumbering) -> None:
    """Read graphs that were traced as a whole, which is nsys's default, into table gpu.

    Each graph is stored as one kernel, because its own kernels were not recorded.
    """
    for batch, start, dur in trace.batches("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", COMMON_COLUMNS):
        names = [trace.name(f"CUDA graph {row[7]} (traced as a whole)" if row[7] != NULL else "CUDA graph") for row in batch]
        trace.note("graphs_whole", "", len(batch))
        _add(
            trace=trace,
            numbering=numbering,
            kind="kernel",
            batch=batch,
            times=(start, dur),
            own_columns={"name_id": np.array(names, np.int32)},
        )


def read_syncs(trace: NsightTrace, numbering: DeviceNumbering) -> None:
    """Read synchronizations into table syncs."""
    kinds = trace.ids["sync_kinds"]
    for batch, start, dur in trace.batches("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (*COMMON_COLUMNS[:5], "syncType")):
        device, stream = numbering.find(batch)
        correlation = trace.correlations(column(batch, 4), column(batch, 1))
        pairs = zip(batch, correlation.tolist(), strict=True)
        kind_names = [trace.waits.get(call) or SYNC_KINDS.get(row[7], "Unknown") for row, call in pairs]
        columns: Columns = {
            "kind": np.array([kinds.setdefault(name, len(kinds)) for name in kind_names], np.int32),
            "device": device,
            "stream": np.where(column(batch, 3) >= NO_STREAM, NULL, stream),
            "start": start,
            "dur": dur,
            "correlation": correlation,
        }
        trace.add("syncs", columns)


def _add(
    trace: NsightTrace,
    numbering: DeviceNumbering,
    kind: str,
    batch: list[tuple[Any, ...]],
    times: tuple[I64, I64],
    own_columns: Columns,
) -> None:
    device, stream = numbering.find(batch)
    columns: Columns = {
        "device": device,
        "stream": stream,
        "start": times[0],
        "dur": times[1],
        "correlation": trace.correlations(column(batch, 4), column(batch, 1)),
        "graph_id": column(batch, 5),
        "graph_node_id": column(batch, 6),
    }
    trace.add_gpu(kind, {**columns, **own_columns})
