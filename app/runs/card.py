"""The content of a run's card, computed once and stored next to the derived files.

The Runs page shows dozens of cards, and the first analysis of a large trace takes seconds. So the ingest child usually computes
the card.
"""

from __future__ import annotations

import contextlib

import msgspec

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.reading_order import best_ms, lead_finding
from sawtooth.analysis.result_cache import cached_file, result_of, with_checksum, without_checksum
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best, judge
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.sparkline import UTILIZATION, recent_utilization
from sawtooth.app.words.advice import below, first, plan_title
from sawtooth.app.words.headline import action, headline
from sawtooth.app.words.run import main_cause_of_loss
from sawtooth.app.words.telemetry import first_finding, first_gpu
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.quantities.registry import BY_COLUMN
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_msgpack

INLINE_BYTES = 24 << 20  # Recordings of this size are analysed within 0.2 s. A larger one would delay the pages of all viewers.
CARD_FILE = "card.msgpack"
CARD_VERSION = 16  # Increase it when the content or the wording of cards changes, so that older cards are computed again.
READINGS = ("best_step_time_ms", "mfu")


class Card(msgspec.Struct, frozen=True):
    """The GPU, the Verdict's headline, the line below it (``state``), readings, and what is wrong.

    ``utilization`` are the last seconds of the quantity ``utilization_of``
    as shares; None is a telemetry gap. ``parts`` are owner, cause and share of the
    step, largest first. ``lost_to`` is the main loss in words, such as "waiting for the data loader"; it is "" if the GPU works
    or the cause is not known. ``after`` is the predicted step after all changes of the plan: ms, and its interval. ``changes``
    is the number of these changes. ``to_do`` is the first change if the headline does not name it.
    """

    gpu: str = ""
    headline: str = ""
    state: str = ""
    readings: dict[str, Reading] = {}
    utilization: list[float | None] = []
    utilization_of: str = UTILIZATION
    problem: str | None = None
    lost_to: str = ""
    parts: list[tuple[str, str | None, float]] = []
    busy: float | None = None
    after: tuple[float, float, float] | None = None
    changes: int = 0
    to_do: str = ""
    form: int = 1


def stored_card(manifest: Manifest, folder: DataFolder) -> Card | None:
    """Return the stored card of ``manifest``; None if it is missing, damaged or out of date."""
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        card = from_msgpack(without_checksum(cached_file(folder, manifest, CARD_FILE).read_bytes()), Card)
        return card if card.form == CARD_VERSION else None
    return None


def is_large(manifest: Manifest, folder: DataFolder) -> bool:
    """Return whether the analysis of the run takes too long for a page."""
    files = [folder.recording_file(ref.id) for ref in manifest.recordings]
    return sum(file.stat().st_size for file in files if file.exists()) > INLINE_BYTES


def card_of(manifest: Manifest, library: Library) -> Card:
    """Return the stored or a new card of ``manifest``; ``problem`` says if a recording is unreadable."""
    if (stored := stored_card(manifest, library.folder)) is not None:
        return stored
    try:
        card = _new_card(manifest, library)
    except SawtoothError as error:
        return Card(problem=str(error))
    with contextlib.suppress(OSError):  # If the disk is full, the card is computed again next time.
        write_atomically(cached_file(library.folder, manifest, CARD_FILE), with_checksum(msgspec.msgpack.encode(card)))
    return card


def _new_card(manifest: Manifest, library: Library) -> Card:
    result = result_of(manifest, library)
    quantity = _utilization_of(result)
    lost = [d.sentence for d in result.diagnostics if d.severity in ("data_loss", "error")]
    return Card(
        gpu=_gpu(result),
        headline=headline(result),
        state=below(result) or "",
        readings={key: result.metrics[key] for key in READINGS},
        utilization=recent_utilization(library, manifest, first_gpu(result), quantity),
        utilization_of=quantity,
        problem=lost[0] if lost else result.manifest.failure,
        lost_to=main_cause_of_loss(result),
        parts=_parts(result),
        busy=busy_share_of_best(result.lead) if result.lead is not None else None,
        after=_after_all(result),
        changes=len(result.plan) if plan_title(result) is not None else 1,
        to_do=_to_do(result),
        form=CARD_VERSION,
    )


def _utilization_of(result: RunResult) -> str:
    """Return the quantity that shows best how busy the GPU is, as in the Verdict's panorama."""
    sampled = result.lead.telemetry if result.lead is not None else None
    column = sampled.signal_column if sampled is not None else None
    return column if column is not None and BY_COLUMN[column].unit == BY_COLUMN[UTILIZATION].unit else UTILIZATION


def _to_do(result: RunResult) -> str:
    """Return the change to make or to try first where the headline names none; "" where it names one."""
    if (warning := first_finding(result)) is not None:
        return action(warning)
    if not result.manifest.traces and best_ms(result) is None:
        return "Record a profile: telemetry shows no cause"
    if lead_finding(result) is not None or best_ms(result) is None or result.withdrawn_by is not None:
        return ""
    change = first(result)
    return f"Try: {action(change[1])}" if change is not None else ""


def _after_all(result: RunResult) -> tuple[float, float, float] | None:
    """Return the predicted step after the plan, else after the first change, in ms, with its interval."""
    if plan_title(result) is not None:
        last = result.plan[-1]
        return last.predicted_step_ms, last.predicted_low_ms, last.predicted_high_ms
    lead = lead_finding(result)
    step_ms = best_ms(result)
    if lead is not None and step_ms and lead.claims == "ceiling" and lead.fed_every_ms is None and not lead.ends_the_run:
        return step_ms - lead.gain_ms, step_ms - lead.gain_ms, step_ms  # The change may gain nothing.
    if lead is None or (ms := lead.predicted_step_ms) is None:
        return None
    return ms, lead.predicted_low_ms or ms, lead.predicted_high_ms or ms


def _parts(result: RunResult) -> list[tuple[str, str | None, float]]:
    """Return owner, cause and share of the step's parts, as in the Verdict's bar.

    Without GPU work, the parts are the host's.
    """
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is not None:
        return [(part.owner, part.cause, part.share) for part in verdict.parts]
    parts = host_parts(result)
    return [(owner, None, ms / sum(parts.values())) for owner, ms in sorted(parts.items(), key=lambda part: -part[1])]


def _gpu(result: RunResult) -> str:
    if not result.ranks and len(sampled := result.telemetry.devices):
        models = ", ".join(sorted({device.name for device in sampled if device.name}))
        several = f"{len(sampled):,} × {models}" if models else f"{len(sampled):,} GPUs"
        return several if len(sampled) > 1 else models
    names = sorted({rank.device_name or (rank.gpu.name if rank.gpu else "") for rank in result.ranks} - {""})
    ranks = f"{result.gpus:,} × " if result.gpus > 1 else ""
    return ranks + ", ".join(names) if names else ""
