"""The manifest of a run: its recordings, and facts that only users and the recorder know."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Annotated, Literal

import msgspec

from sawtooth.ingest.loop.code_location import MAX_LENGTH
from sawtooth.ingest.loop.command import command_of, failure_of, remarks_of

ID_PATTERN = re.compile(r"[0-9a-f]{16}")

# Ranges of numbers from users and bundles. A number outside its range is a mistake or an attack, and arithmetic with it could overflow.
Amount = Annotated[float, msgspec.Meta(ge=1e-6, le=1e24)]  # FLOPs, parameters, tokens, samples.
Rate = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]  # Used for ms, TFLOP/s and prices.
Measure = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # Used for ms, shares and counts that may be 0.
CodeLocation = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]  # Such as train.py(12): collate.
Shift = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # In ns. The sum of a shift and a Unix time fits 64 bits.
Interval = Annotated[int, msgspec.Meta(gt=0, le=1 << 62)]  # In ns.

# Telemetry is from another time if it ends at least this long before a trace, or begins at least this long after the trace.
SAME_TIME_NS = 60_000_000_000


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of a recording or run id."""
    return ID_PATTERN.fullmatch(text) is not None


# compile: torch.compile's structured log; memory: a snapshot of PyTorch's CUDA allocator
RecordingKind = Literal["trace", "telemetry", "marks", "compile", "memory"]


class RecordingRef(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One recording of a run, and its role in this run.

    ``offset_ns`` is added to the times of telemetry to convert them to the clock of the traces. ``interval_ns`` is the time between samples
    of a file without times. These two are set only if a user entered them. ``samples`` is True for a trace that also contains telemetry.
    """

    id: str
    kind: str  # A RecordingKind, or a kind that a newer version wrote.
    source_name: str
    rank: int | None = None
    host: str | None = None
    offset_ns: Shift | None = None
    interval_ns: Interval | None = None
    samples: bool = False


class UserFacts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Facts of a run that only the user or the recorder knows.

    None means not entered. ``loader_…`` are measurements of the data loader (``capture/batches.py``). ``loader_sample_ms`` is the wall time
    of a sample, with its standard error, and ``loader_sample_cpu_ms`` the CPU time. ``loader_collate_ms`` and ``loader_pin_ms`` are the times of a
    batch of ``loader_batch`` samples. ``loader_workers`` workers ran on ``loader_cores`` cores. ``loader_padding`` is the share of padding in a
    batch. ``loader_sample_code`` and ``loader_collate_code`` are the places of the code that makes a sample and collates a batch.
    ``loop.page_cache.FirstRead`` explains ``loader_first_…``, ``loader_later_…``, ``loader_dataset_samples`` and ``loader_room_bytes``.
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

    ``low_ms`` and ``high_ms`` are the shortest and longest step, and ``memory_bytes`` is the peak of allocated bytes. Without ``step_ms``,
    the batch did not fit into memory.
    """

    batch: Amount
    step_ms: Rate | None = None
    low_ms: Rate | None = None
    high_ms: Rate | None = None
    optimizer_ms: Measure | None = None
    memory_bytes: Amount | None = None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run, as users see it.

    ``settings`` are the user's key/value pairs, such as the batch size. ``batches`` are the batch sizes that ``find_batch_size`` tried.
    ``bundled`` marks an example of the app. ``summaries`` is the id of the file with the summaries of a job's ranks. ``command`` has the words
    of the command of `sawtooth run`.
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
        """The settings, including those in tags of the form ``key=value``."""
        tags = dict(tag.split("=", 1) for tag in self.tags if "=" in tag)
        return {key.strip(): value.strip() for key, value in {**tags, **self.settings}.items()}

    @property
    def recorded_command(self) -> list[str]:
        """The command of `sawtooth run`, from ``command`` or, for older runs, from the notes.

        [] for a run that was recorded in another way.
        """
        return command_of(self.command, self.notes)

    @property
    def failure(self) -> str | None:
        """The sentence of `sawtooth run` that says that the training failed, or None."""
        return failure_of(self.notes)

    @property
    def remarks(self) -> list[str]:
        """The recorder's sentences that change how the numbers are read, such as a pause."""
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
