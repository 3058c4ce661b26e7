"""The stored arguments of events, with the profilers' names. Numbers may be int, float or text."""

from __future__ import annotations

import operator
import re

import msgspec
from msgspec import Raw, field

from sawtooth.ingest.decode import NULL

Number = int | float | str | None
EMPTY_TEXT = Raw(b"")
NO_ARGS = Raw(b"{}")


class GpuArgs(msgspec.Struct, gc=False):
    """Arguments of kernels, copies and memory sets."""

    device: Number = NULL
    context: Number = NULL
    stream: Number = NULL
    correlation: Number = NULL
    external: Number = field(name="External id", default=NULL)
    external_2021: Number = field(name="external id", default=NULL)
    registers: Number = field(name="registers per thread", default=NULL)
    shared: Number = field(name="shared memory", default=NULL)
    blocks: Number = field(name="blocks per SM", default=None)
    warps: Number = field(name="warps per SM", default=None)
    occupancy: Number = field(name="est. achieved occupancy %", default=None)
    bytes: Number = NULL
    graph: Number = field(name="graph id", default=NULL)
    node: Number = field(name="graph node id", default=NULL)
    grid: Raw = EMPTY_TEXT
    block: Raw = EMPTY_TEXT


class GraphAnnotationArgs(msgspec.Struct, gc=False):
    """Arguments that ``torch.cuda.graph(enable_annotations=True)`` adds to the operations of a graph.

    ``name`` is the name of the innermost ``mark_kernels``. Cuspy writes a name without a dict as ``annotation``, and torch 2.12 wrote it as
    ``str``. ``phase`` is "backward" for the work of autograd nodes that the marked code created.
    """

    graph: Number = field(name="graph id", default=NULL)
    node: Number = field(name="graph node id", default=NULL)
    name: Number = None
    annotation: Number = None
    text: Number = field(name="str", default=None)
    phase: Number = field(name="autograd_phase", default=None)

    @property
    def label(self) -> str:
        """The name; "" for an operation outside a graph or without a name."""
        if self.node in (NULL, 0, None):
            return ""
        names = (self.name, self.annotation, self.text)
        return next((str(name) for name in names if name not in (None, "")), "")


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of runtime and driver calls."""

    correlation: Number = NULL


class OpArgs(msgspec.Struct, gc=False):
    """Arguments of operators and annotations."""

    external: Number = field(name="External id", default=NULL)
    sequence: Number = field(name="Sequence number", default=NULL)
    forward: Number = field(name="Fwd thread id", default=NULL)


class ShapeArgs(msgspec.Struct, gc=False):
    """Inputs of operators; ``dims_2021`` is an older spelling."""

    dims: Raw = field(name="Input Dims", default=EMPTY_TEXT)
    types: Raw = field(name="Input type", default=EMPTY_TEXT)
    strides: Raw = field(name="Input Strides", default=EMPTY_TEXT)
    concrete: Raw = field(name="Concrete Inputs", default=EMPTY_TEXT)
    dims_2021: Raw = field(name="Input dims", default=EMPTY_TEXT)


class PythonArgs(msgspec.Struct, gc=False):
    """Arguments of Python calls."""

    module: Number = field(name="Python module id", default=NULL)


class SyncArgs(msgspec.Struct, gc=False):
    """Arguments of synchronizations."""

    kind: Number = field(name="cuda_sync_kind", default=None)
    device: Number = NULL
    stream: Number = NULL
    correlation: Number = NULL
    wait_stream: Number = field(name="wait_on_stream", default=NULL)
    wait_event: Number = field(name="wait_on_cuda_event_record_corr_id", default=NULL)


class MemoryArgs(msgspec.Struct, gc=False):
    """Arguments of allocator events."""

    address: Number = field(name="Addr", default=NULL)
    bytes: Number = field(name="Bytes", default=NULL)
    allocated: Number = field(name="Total Allocated", default=NULL)
    reserved: Number = field(name="Total Reserved", default=NULL)
    device_type: Number = field(name="Device Type", default=NULL)
    device: Number = field(name="Device Id", default=NULL)


class CollectiveArgs(msgspec.Struct, gc=False):
    """Arguments of collectives, on operators and on kernels."""

    name: Number = field(name="Collective name", default=None)
    dtype: Number = None
    in_elements: Number = field(name="In msg nelems", default=NULL)
    out_elements: Number = field(name="Out msg nelems", default=NULL)
    group_name: Number = field(name="Process Group Name", default=None)
    group_description: Number = field(name="Process Group Description", default=None)
    group_size: Number = field(name="Group size", default=NULL)
    group_ranks: Number = field(name="Process Group Ranks", default=None)
    sequence: Number = field(name="Seq", default=NULL)
    source: Number = field(name="Src Rank", default=NULL)
    destination: Number = field(name="Dst Rank", default=NULL)
    asynchronous: bool | Number = field(name="Is asynchronized op", default=None)


# These arguments of operators are stored as JSON.
EXTRA_KEYS = (
    "Call stack",
    "Module Hierarchy",
    "Backend",
    "kernel_backend",
    "kernel_hash",
    "kernel_file",
    "kernel_name",
    "kernel_kwargs",
    "num_warps",
    "num_stages",
)
EXTRA_PATTERN = re.compile(b'"(?:' + "|".join(EXTRA_KEYS).encode() + b')"\\s*:\\s*+(?!""|\\[\\])')


_INPUTS = [(f.name, f.type, field(name=f.encode_name, default=f.default)) for f in msgspec.structs.fields(ShapeArgs)]
_EXTRAS = [(key.lower().replace(" ", "_"), Raw, field(name=key, default=EMPTY_TEXT)) for key in EXTRA_KEYS]
OpInputArgs = msgspec.defstruct("OpInputArgs", _INPUTS, bases=(OpArgs,), gc=False)
OpExtraArgs = msgspec.defstruct("OpExtraArgs", _INPUTS + _EXTRAS, bases=(OpArgs,), gc=False)
input_texts = operator.attrgetter(*[name for name, *_ in _INPUTS])
extra_texts = operator.attrgetter(*[name for name, *_ in _EXTRAS])
