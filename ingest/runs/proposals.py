"""Proposals: changes to an existing run from a bundle, applied only if the user accepts them.

A bundle may come from another person. A bundle may add new runs, but an existing run keeps its recordings, clocks, name, notes, tags,
settings and facts until the run's owner accepts the proposal.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import msgspec

from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.manifest import BatchTrial, Manifest, RecordingRef, UserFacts
from sawtooth.ingest.runs.recordings import check_not_deleted, join_refs, runs_locked
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

CLOCK_FIELDS = {"offset_ns": "time added (s)", "interval_ns": "time between samples (s)"}


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The values that a bundle has for the run ``run_id``.

    Empty texts, empty lists and facts that are None change nothing.
    """

    run_id: str
    bundle_name: str
    recordings: list[RecordingRef]
    name: str = ""
    notes: str = ""
    tags: list[str] = []
    settings: dict[str, str] = {}
    facts: UserFacts = UserFacts()
    batches: list[BatchTrial] = []
    command: list[str] = []


@dataclass(frozen=True)
class ProposedChange:
    """One change of a proposal, as texts; ``before`` is "" if there was no value."""

    what: str
    before: str
    after: str


def propose(folder: DataFolder, proposal: Proposal) -> None:
    """Store a proposal, which replaces an older proposal for the run.

    A proposal that would change nothing is not stored.
    """
    with runs_locked(folder):
        check_not_deleted(folder, proposal.recordings)
        replaced = _proposed_ids(folder, proposal.run_id)
        if list_changes(folder.read_manifest(proposal.run_id), proposal):
            write_atomically(
                folder.proposal_file(proposal.run_id),
                with_checksum(msgspec.json.format(msgspec.json.encode(proposal), indent=2)),
            )
            remove_unused(folder, replaced)


def proposal_for(folder: DataFolder, run_id: str) -> Proposal | None:
    """Return the proposal for a run; None without a readable proposal that would change the run."""
    proposal = _stored_proposal(folder, run_id)
    with contextlib.suppress(NotFoundError):
        if proposal is not None and list_changes(folder.read_manifest(run_id), proposal):
            return proposal
    return None


def accepted(manifest: Manifest, proposal: Proposal) -> Manifest:
    """Return ``manifest`` with all changes of the proposal."""
    facts = {key: value for key, value in msgspec.structs.asdict(proposal.facts).items() if value is not None}
    return msgspec.structs.replace(
        manifest,
        recordings=join_refs(manifest.recordings, proposal.recordings),
        name=proposal.name or manifest.name,
        notes=proposal.notes or manifest.notes,
        tags=list(dict.fromkeys([*manifest.tags, *proposal.tags])),
        settings={**manifest.settings, **proposal.settings},
        facts=msgspec.structs.replace(manifest.facts, **facts),
        batches=proposal.batches or manifest.batches,
        command=proposal.command or manifest.command,
    )


def list_changes(manifest: Manifest, proposal: Proposal) -> list[ProposedChange]:
    """Return the changes that accepting the proposal would make."""
    after = accepted(manifest, proposal)
    pairs = [(what, getattr(manifest, what), getattr(after, what)) for what in ("name", "notes")]
    pairs.append(("tags", ", ".join(manifest.tags), ", ".join(after.tags)))
    pairs += [(f"setting {key}", manifest.settings.get(key, ""), value) for key, value in after.settings.items()]
    facts = msgspec.structs.asdict(manifest.facts)
    pairs += [(key, _fact(facts[key]), _fact(value)) for key, value in msgspec.structs.asdict(after.facts).items()]
    pairs.append(("command", " ".join(manifest.command), " ".join(after.command)))
    pairs.append(("batch sizes tried", _sizes(manifest.batches), _sizes(after.batches)))
    old_refs = {ref.id: ref for ref in manifest.recordings}
    for ref in after.recordings:
        if ref.id not in old_refs:
            pairs.append(("recording", "", f"{ref.source_name} ({ref.kind})"))
        for field, label in CLOCK_FIELDS.items():
            old, new = getattr(old_refs.get(ref.id), field, None), getattr(ref, field)
            pairs.append((f"{ref.source_name}, {label}", _seconds(old), _seconds(new)))
    return [ProposedChange(what, before, now) for what, before, now in pairs if before != now]


def accept(folder: DataFolder, run_id: str) -> Manifest:
    """Apply a run's proposal and return the run's manifest. Raises NotFoundError if there is no proposal."""
    with runs_locked(folder):
        proposal = proposal_for(folder, run_id)
        if proposal is None:
            raise NotFoundError("There is no proposal for this run any more. Import its .sawtooth file again.")
        check_not_deleted(folder, proposal.recordings)
        manifest = accepted(folder.read_manifest(run_id), proposal)
        folder.write_manifest(manifest)
        folder.proposal_file(run_id).unlink(missing_ok=True)
    return manifest


def dismiss(folder: DataFolder, run_id: str) -> None:
    """Delete a run's proposal, with the recordings that only the proposal needs."""
    with runs_locked(folder):
        delete_proposal(folder, run_id)


def delete_proposal(folder: DataFolder, run_id: str) -> None:
    """Delete a run's proposal like ``dismiss``. The caller has locked the runs already."""
    recordings = _proposed_ids(folder, run_id)
    folder.proposal_file(run_id).unlink(missing_ok=True)
    remove_unused(folder, recordings)


def needed_ids(folder: DataFolder, run: Manifest) -> set[str]:
    """Return the ids of the run's recordings, of its summaries, and of its proposal's recordings."""
    ids = {ref.id for ref in run.recordings} | _proposed_ids(folder, run.id)
    return ids | {run.summaries} if run.summaries else ids


def remove_unused(folder: DataFolder, recordings: set[str]) -> None:
    """Remove the ``recordings`` that no run needs, with their derived files and sources."""
    used = set().union(*(needed_ids(folder, run) for run in folder.manifests()))
    for identifier in recordings - used:
        for directory in (folder.recordings, folder.derived, folder.sources):
            for file in directory.glob(f"{identifier}.*"):
                file.unlink(missing_ok=True)


def _proposed_ids(folder: DataFolder, run_id: str) -> set[str]:
    proposal = _stored_proposal(folder, run_id)
    return {ref.id for ref in proposal.recordings} if proposal is not None else set()


def _stored_proposal(folder: DataFolder, run_id: str) -> Proposal | None:
    try:
        proposal = from_json(without_checksum(folder.proposal_file(run_id).read_bytes()), Proposal)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors.
        return None
    return proposal if proposal.run_id == run_id else None


def _fact(value: float | str | None) -> str:
    """Return a fact as text. Most facts are numbers, but the names of the loader's code are texts."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.10g}"


def _sizes(batches: list[BatchTrial]) -> str:
    trials = (
        f"{_fact(trial.batch)}: {_fact(trial.step_ms) + ' ms' if trial.step_ms else 'out of memory'}" for trial in batches
    )
    return ", ".join(trials)


def _seconds(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e9:.9g}"
