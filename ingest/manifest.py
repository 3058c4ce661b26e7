"""The manifest of a run: its recordings, and the facts that only people and the recorder know."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Annotated, Literal

import msgspec

from sawtooth.ingest.loop.code_location import MAX_LENGTH
from sawtooth.ingest.loop.command import command_of, failure_of, remarks_of

ID_PATTERN = re.compile(r"[0-9a-f]{16}")

# Numbers from people and bundles. A number outside its range is a mistake or an attack, and arithmetic with it would give
# infinity.
Amount = Annotated[float, msgspec.Meta(ge=1e-6, le=1e24)]  # FLOPs, parameters, tokens, samples
Rate = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]  # ms, TFLOP/s, price
Measure = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # ms of something that may take no time
CodeLocation = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]  # such as train.py(12): collate
Shift = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # ns: 146 years, and Unix times plus it fit 64 bits
Interval = Annotated[int, msgspec.Meta(gt=0, le=1 << 62)]  # ns

# Time between samples and a trace. Samples that end this long before the trace, or begin this long after it, are of another
# time.
SAME_TIME_NS = 60_000_000_000


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of a recording or run id."""
    return ID_PATTERN.fullmatch(text) is not None


# compile: torch.compile's structured log; memory: a snapshot of PyTorch's CUDA allocator
RecordingKind = Literal["trace", "telemetry", "marks", "compile", "memory"]


class RecordingRef(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One recording of a run and its role in it.

    For telemetry, ``offset_ns`` is added to its times to convert them to the traces' clock. ``interval_ns`` is the time between
    samples of a file without times. Both are set only if a user entered them. ``samples`` says that a trace contains telemetry
    as well.
    """

    id: str
    kind: str  # a RecordingKind; read as any text, because a newer version may have written it
    source_name: str
    rank: int | None = None
    host: str | None = None
    offset_ns: Shift | None = None
    interval_ns: Interval | None = None
    samples: bool = False


class UserFacts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Facts of a run that only the user, or the helper inside the loop, knows.

    Units are in the names; None means not entered. ``loader_…`` are the loader's times (``capture/batches.py``): of a sample by
    the wall clock with its standard error, of a sample on a core, of collating a batch of ``loader_batch`` samples, and of
    pinning it. There were ``loader_workers`` workers on ``loader_cores`` cores. ``loader_padding`` is the share of a batch that is padding;
    ``loader_sample_code`` and ``loader_collate_code`` are the code that makes a sample and collates a batch. ``loader_first_…``, ``loader_later_…``, the
    dataset's samples and the memory available for files are those of ``loop.page_cache.FirstRead``.
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
    loader_sample_code: CodeLocation | None = None
    loader_collate_code: CodeLocation | None = None
    loader_first_disk_share: Measure | None = None
    loader_first_sample_ms: Measure | None = None
    loader_first_sample_bytes: Amount | None = None
    loader_dataset_samples: Amount | None = None
    loader_room_bytes: Amount | None = None
    loader_later_disk_share: Measure | None = None
    loader_later_from_ns: Amount | None = None


class BatchTrial(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A batch size that ``find_batch_size`` tried.

    It has the ms of a step with minimum and maximum, the ms of the optimizer in it, and the bytes allocated at the peak.
    Without ``step_ms``, memory did not suffice.
    """

    batch: Amount
    step_ms: Rate | None = None
    low_ms: Rate | None = None
    high_ms: Rate | None = None
    optimizer_ms: Measure | None = None
    memory_bytes: Amount | None = None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run, as users see it.

    ``settings`` are free key/value pairs used by sweeps (batch size, workers, …). ``batches`` are the sizes tried besides the
    run's own. ``command`` is the command of `sawtooth run`, word by word.
    """

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
    def all_settings(self) -> dict[str, str]:
        """The settings, with those of ``key=value`` tags."""
        tags = dict(tag.split("=", 1) for tag in self.tags if "=" in tag)
        return {key.strip(): value.strip() for key, value in {**tags, **self.settings}.items()}

    @property
    def recorded_command(self) -> list[str]:
        """The command of `sawtooth run`, also for runs that have it in their notes only.

        [] for a run that was recorded in another way.
        """
        return command_of(self.command, self.notes)

    @property
    def failure(self) -> str | None:
        """The sentence of `sawtooth run` that the training ended with an error; None for all other runs."""
        return failure_of(self.notes)

    @property
    def remarks(self) -> list[str]:
        """The recorder's sentences that change how the numbers are read (several processes, a pause)."""
        return remarks_of(self.notes)

    @property
    def traces(self) -> list[RecordingRef]:
        """The run's traces, by rank."""
        return sorted((r for r in self.recordings if r.kind == "trace"), key=lambda r: (r.rank is None, r.rank or 0, r.id))

    @property
    def telemetry(self) -> list[RecordingRef]:
        """The run's recordings with telemetry; traces with telemetry of their own come last."""
        return [r for r in self.recordings if r.kind == "telemetry"] + [r for r in self.recordings if r.samples]


def run_id_of(recordings: list[RecordingRef]) -> str:
    """Return the id of the run of ``recordings``.

    It is a hash of the sorted trace ids, or of the telemetry ids if there is no trace.
    """
    ids = sorted({r.id for r in recordings if r.kind == "trace"}) or sorted({r.id for r in recordings})
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


def new_manifest(recordings: list[RecordingRef], name: str) -> Manifest:
    """Return a manifest for ``recordings``, created now."""
    return Manifest(id=run_id_of(recordings), name=name, recordings=recordings, created_ns=time.time_ns())
