"""What a run is: the manifest that names its recordings and holds what only people and the recorder know of it."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Annotated, Literal

import msgspec

from sawtooth.ingest.loop.command import command_of, failure_of

ID_PATTERN = re.compile(r"[0-9a-f]{16}")

# What people and bundles say of a run. Beyond these a number is a slip or an attack, and arithmetic on it ends in infinity.
Amount = Annotated[float, msgspec.Meta(ge=1e-6, le=1e24)]  # FLOPs, parameters, tokens, samples
Rate = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]  # ms, TFLOP/s, price
Measure = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # ms of what may take none
Place = Annotated[str, msgspec.Meta(max_length=300)]  # of code: train.py(12): collate
Shift = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # ns: 146 years, and Unix times plus it fit 64 bits
Interval = Annotated[int, msgspec.Meta(gt=0, le=1 << 62)]  # ns

# Between samples and a trace: samples that end this long before it, or begin as long after it, show some other time.
SAME_TIME_NS = 60_000_000_000


def is_id(text: str) -> bool:
    """Tell whether ``text`` has the form of a recording or run id."""
    return ID_PATTERN.fullmatch(text) is not None


RecordingKind = Literal["trace", "telemetry", "marks", "compile"]  # compile: torch.compile's structured log


class RecordingRef(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One recording of a run and its role in it.

    Of telemetry, ``offset_ns`` is added to its times to bring them onto the traces' clock, ``interval_ns`` is the time between samples of
    a file that has no times; both only where somebody gave them. ``samples``: a trace that holds telemetry as well.
    """

    id: str
    kind: str  # a RecordingKind; read as any text, since a newer version may have written it
    source_name: str
    rank: int | None = None
    host: str | None = None
    offset_ns: Shift | None = None
    interval_ns: Interval | None = None
    samples: bool = False


class UserFacts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What only the user, or the helper inside the loop, knows about a run. Units are in the names; None means not given.

    ``loader_…`` is what the loader's processes took (``capture/batches.py``): of a sample by the wall clock, its standard error and its time on
    a core, of putting a batch of ``loader_batch`` together and of pinning it, with ``loader_workers`` of them on ``loader_cores``; which share of a batch is
    padding, and where the code is that makes a sample and puts a batch together. ``loader_first_…``,
    ``loader_later_…``, the dataset's samples and the room for files in memory are those of ``loop.page_cache.FirstRead``.
    """

    flops_per_step: Amount | None = None
    parameters: Amount | None = None
    tokens_per_step: Amount | None = None
    samples_per_step: Amount | None = None
    step_time_ms: Rate | None = None
    peak_tflops: Rate | None = None
    price_per_gpu_hour: Rate | None = None
    loader_workers: Measure | None = None
    loader_cores: Rate | None = None
    loader_batch: Rate | None = None
    loader_sample_ms: Rate | None = None
    loader_sample_error_ms: Measure | None = None
    loader_sample_cpu_ms: Measure | None = None
    loader_collate_ms: Measure | None = None
    loader_pin_ms: Measure | None = None
    loader_padding: Measure | None = None
    loader_sample_code: Place | None = None
    loader_collate_code: Place | None = None
    loader_first_disk_share: Measure | None = None
    loader_first_sample_ms: Measure | None = None
    loader_first_sample_bytes: Amount | None = None
    loader_dataset_samples: Amount | None = None
    loader_room_bytes: Amount | None = None
    loader_later_disk_share: Measure | None = None
    loader_later_from_ns: Amount | None = None


class BatchTrial(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A batch size that ``find_batch_size`` tried: ms of a step with its least and most, of the optimizer in it, and bytes allocated at its peak.

    Without ``step_ms`` memory did not suffice.
    """

    batch: Amount
    step_ms: Rate | None = None
    low_ms: Rate | None = None
    high_ms: Rate | None = None
    optimizer_ms: Measure | None = None
    memory_bytes: Amount | None = None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run: what a person talks about. ``settings`` are free key/value pairs used by sweeps (batch size, workers, …);
    ``batches`` are the sizes tried beside the run's own, ``command`` is what `sawtooth run` was given, word by word."""

    id: str
    name: str
    recordings: list[RecordingRef]
    created_ns: int = 0
    notes: str = ""
    tags: list[str] = []
    settings: dict[str, str] = {}
    facts: UserFacts = UserFacts()
    batches: list[BatchTrial] = []
    bundled: bool = False
    summaries: str | None = None
    command: list[str] = []

    @property
    def recorded_command(self) -> list[str]:
        """What `sawtooth run` was given, of runs that have it in their notes alone too; [] for a run that was recorded otherwise."""
        return command_of(self.command, self.notes)

    @property
    def failure(self) -> str | None:
        """The sentence in which `sawtooth run` says that the training ended with an error; None of all other runs."""
        return failure_of(self.notes)

    @property
    def traces(self) -> list[RecordingRef]:
        """The run's traces, by rank."""
        return sorted((r for r in self.recordings if r.kind == "trace"), key=lambda r: (r.rank is None, r.rank or 0, r.id))

    @property
    def telemetry(self) -> list[RecordingRef]:
        """The run's recordings with telemetry; traces that hold some themselves come last."""
        return [r for r in self.recordings if r.kind == "telemetry"] + [r for r in self.recordings if r.samples]


def run_id_of(recordings: list[RecordingRef]) -> str:
    """Return the id of the run that holds ``recordings``: a hash of the sorted trace ids, or of the telemetry ids where there is no trace."""
    ids = sorted({r.id for r in recordings if r.kind == "trace"}) or sorted({r.id for r in recordings})
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


def new_manifest(recordings: list[RecordingRef], name: str) -> Manifest:
    """Return a manifest for ``recordings``, created now."""
    return Manifest(id=run_id_of(recordings), name=name, recordings=recordings, created_ns=time.time_ns())
