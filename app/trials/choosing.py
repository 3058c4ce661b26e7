"""Choose the changes to try by the findings of the base run, and by the settings of the training."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.units import percent
from sawtooth.app.trials.changes import CHANGES, Change
from sawtooth.ingest.capture.trials.changes import environment, loader, optimizer, outermost, parallel, switches
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, predict

SUFFICIENT_RATE_SHARE = 0.9  # Share of the highest predicted sample rate. The fewest workers that reach it are tried.
MIN_LOADING_SHARE = 0.05  # Share of the step. More workers are tried if loading takes at least this.
DEFAULT_WORKERS = 4  # Workers to try if the loading time of a sample is not known.
# Values to try. PyTorch's defaults are a prefetch factor of 2 and buckets of 25 MB.
PREFETCH_FACTOR = 4
BUCKET_MB = 100.0
GC_INTERVAL_STEPS = 1000
BATCH_FACTOR = 2.0
NO_GPU = "This change has an effect on a GPU only."
NEEDS_NUMERICS = "This changes the training's numbers. Add --allow-numerics to try it."
BY_HAND = "This change must be made in the code: {fix}"
NOT_APPLICABLE = "The training has nothing that this change applies to."
ALREADY_DONE = "The training does this already."
HIDDEN_REASONS = (NOT_APPLICABLE, ALREADY_DONE)  # A change with such a reason is not listed.
GROUP_BY_LENGTH = "group-by-length"  # Slug of an advice that the user must follow by hand.
MIN_PADDING_SHARE = 0.2  # Share of a batch that is padding. Grouping by length saves at most this share.
PADDING_RULE = "shapes-vary"  # The rule that finds padding.
PADDING_ADVICE = "{share} of a batch is padding. This needs a batch sampler that groups samples of similar length."
WORKERS_ARGUMENT = re.compile(r"num_workers=(\d+)")


@dataclass(frozen=True)
class Candidate:
    """A change to try with its values, and the step time in ms that its finding predicts.

    ``by_hand`` says why the change cannot be tried inside the process. ``slug`` is the finding's rule if Sawtooth knows no change
    for it. ``ceiling_ms`` is the largest possible gain.
    """

    slug: str
    values: Mapping[str, Any] = field(default_factory=dict)
    rule: str | None = None
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    ceiling_ms: float = 0.0
    by_hand: str = ""

    def sure_gain_ms(self, step_ms: float) -> float:
        """Return the gain in ms at the upper end of the predicted step time; 0 without a prediction."""
        upper_ms = self.high_ms if self.high_ms is not None else self.predicted_ms
        return step_ms - upper_ms if upper_ms is not None else 0.0

    @property
    def change(self) -> Change | None:
        """The known change, if there is one."""
        return CHANGES.get(self.slug)

    @property
    def code(self) -> str:
        """The lines to put into the code."""
        return self.change.code_with(self.values) if self.change is not None else ""


def group_of(candidate: Candidate) -> str:
    """Return the name of the group of changes that replace each other; the slug if there is no group."""
    return (candidate.change.group if candidate.change is not None else "") or candidate.slug


class TrainingNotes:
    """The settings and objects that the base run's processes noted about the training."""

    def __init__(self, notes: Sequence[Mapping[str, Any]]) -> None:
        self._notes = notes

    def entries(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the entries of one kind from all processes."""
        return [entry for notes in self._notes for entry in notes["seen"].get(kind, [])]

    @property
    def has_gpu(self) -> bool:
        """Whether the training can use a GPU."""
        return any(entry.get("cuda") for entry in self.entries("settings"))


def candidates(result: RunResult, notes: Sequence[Mapping[str, Any]], *, numerics: bool = False) -> list[Candidate]:
    """Return the changes by certain gain, then by largest possible gain; changes by hand come last."""
    training = TrainingNotes(notes)
    findings = result.findings
    # With so much padding, the advice is GROUP_BY_LENGTH.
    if (result.manifest.facts.loader_padding or 0.0) >= MIN_PADDING_SHARE:
        findings = [finding for finding in findings if finding.rule != PADDING_RULE]
    all_candidates = [candidate for finding in findings for candidate in _candidates_of_finding(finding, result, training)]
    all_candidates += _candidates_without_finding(result, training)
    step_ms = result.metrics["best_step_time_ms"].value or 0.0
    ordered = sorted(
        _one_per_change(all_candidates),
        key=lambda candidate: (bool(candidate.by_hand), -candidate.sure_gain_ms(step_ms), -candidate.ceiling_ms),
    )
    return [_with_refusal(candidate, training, numerics) for candidate in ordered]


def _one_per_change(all_candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return one candidate for each change: the first with a prediction, or else the first."""
    best: dict[str, Candidate] = {}
    for candidate in all_candidates:
        earlier = best.get(candidate.slug)
        has_prediction = candidate.predicted_ms is not None and not candidate.by_hand
        if earlier is None or (earlier.predicted_ms is None and has_prediction):
            best[candidate.slug] = candidate
    return list(best.values())


def _with_refusal(candidate: Candidate, training: TrainingNotes, numerics: bool) -> Candidate:
    """Return ``candidate``, with the reason if it may not be tried."""
    change = candidate.change
    if candidate.by_hand or change is None:
        return candidate
    if change.needs_gpu and not training.has_gpu:
        return replace(candidate, by_hand=NO_GPU)
    if change.result == "other result" and not numerics:
        return replace(candidate, by_hand=NEEDS_NUMERICS)
    return candidate


def _candidates_of_finding(finding: Finding, result: RunResult, training: TrainingNotes) -> Iterator[Candidate]:
    """Yield the changes that follow the advice of ``finding``; without such a change, a candidate by hand."""
    advice = Candidate(
        finding.rule,
        rule=finding.rule,
        predicted_ms=finding.predicted_step_ms,
        low_ms=finding.predicted_low_ms,
        high_ms=finding.predicted_high_ms,
        ceiling_ms=finding.gain_ms,
    )
    changes = [change for change in CHANGES.values() if finding.rule in change.rules]
    reasons = []
    has_change = False
    for change in changes:
        values = _values(change.slug, finding, result, training)
        if isinstance(values, str):
            reasons += [(change.slug, values)] if values not in HIDDEN_REASONS else []
            continue
        has_change = True
        if change.slug == loader.WORKERS and _advised_workers(finding) is None:  # The finding predicts another change.
            yield Candidate(change.slug, values, ceiling_ms=finding.gain_ms)
        else:
            yield replace(advice, slug=change.slug, values=values)
    if has_change or (finding.severity == "info" and not reasons) or finding.claims == "caution":
        return
    slug, why = reasons[0] if reasons else (finding.rule, BY_HAND.format(fix=finding.fix))
    yield replace(advice, slug=slug, by_hand=why)


def _candidates_without_finding(result: RunResult, training: TrainingNotes) -> Iterator[Candidate]:
    """Yield the changes that the training's settings and its loader's times suggest."""
    facts = result.manifest.facts
    cost, step_ms = sample_cost(facts), result.metrics["best_step_time_ms"].value
    loaders, optimizers = training.entries("loader"), training.entries("optimizer")
    if loaders and cost is not None and step_ms:
        loading_ms = 1e3 * (cost.batch * cost.wall_s + cost.collate_s) / max(int(facts.loader_workers or 0), 1)
        if loading_ms >= MIN_LOADING_SHARE * step_ms:
            yield from _candidate_or_reason(loader.WORKERS, _workers(None, result, training), loading_ms)
    elif (
        loaders
        and not any(loader_settings["workers"] for loader_settings in loaders)
        and all(loader_settings["refusal"] for loader_settings in loaders)
    ):
        yield Candidate(loader.WORKERS, by_hand=loaders[0]["refusal"])
    update_functions = [entry["way"] for entry in training.entries("update")]
    is_unfused = any(function.startswith("_single_tensor_") for function in update_functions)
    if is_unfused or any(loader_settings["foreach"] is False for loader_settings in optimizers):
        yield from _candidate_or_reason(optimizer.FUSED, _optimizer("fused", training))
        if any(loader_settings["foreach"] is False and not loader_settings["fused"] for loader_settings in optimizers):
            yield from _candidate_or_reason(optimizer.FOREACH, _optimizer("foreach", training))
    if (share := facts.loader_padding or 0.0) >= MIN_PADDING_SHARE:
        ceiling_ms = max((finding.gain_ms for finding in result.findings if finding.rule == PADDING_RULE), default=0.0)
        yield Candidate(GROUP_BY_LENGTH, by_hand=PADDING_ADVICE.format(share=percent(share)), ceiling_ms=ceiling_ms)
    if training.entries("anomaly"):
        yield Candidate(switches.ANOMALY)
    if any(not loader_settings["views"] for loader_settings in training.entries("ddp")):
        yield Candidate(parallel.VIEW)


def _candidate_or_reason(slug: str, values: Mapping[str, Any] | str, ceiling_ms: float = 0.0) -> Iterator[Candidate]:
    """Yield the change with its values.

    A candidate by hand if ``values`` is a reason that users need to know.
    """
    if not isinstance(values, str):
        yield Candidate(slug, values, ceiling_ms=ceiling_ms)
    elif values not in HIDDEN_REASONS:
        yield Candidate(slug, by_hand=values)


def _values(slug: str, finding: Finding, result: RunResult, training: TrainingNotes) -> Mapping[str, Any] | str:
    """Return the values of a change, or why it does not apply."""
    loaders = training.entries("loader")
    match slug:
        case loader.WORKERS:
            return _workers(finding, result, training)
        case loader.PERSISTENT | loader.PREFETCH:
            if not any(loader_settings["workers"] for loader_settings in loaders):
                return NOT_APPLICABLE
            return {"factor": PREFETCH_FACTOR} if slug == loader.PREFETCH else {}
        case loader.PINNED:
            return _unless_all(loaders, "pinned")
        case loader.BATCH:
            sizes = [loader_settings["batch"] for loader_settings in loaders if loader_settings["batch"]]
            return {"times": BATCH_FACTOR, "batch": BATCH_FACTOR * max(sizes)} if sizes else NOT_APPLICABLE
        case optimizer.FUSED | optimizer.FOREACH:
            return _optimizer(slug.partition("-")[0], training)
        case parallel.BUCKET:
            return {"mb": BUCKET_MB} if training.entries("ddp") else NOT_APPLICABLE
        case parallel.STATIC | parallel.VIEW:
            return {} if training.entries("ddp") else NOT_APPLICABLE
        case environment.THREADS:
            return {"threads": 1} if any(loader_settings["workers"] for loader_settings in loaders) else NOT_APPLICABLE
        case outermost.COMPILE | outermost.GRAPHS:
            return _unless_all(training.entries("model"), "compiled")
        case outermost.LAYOUT:
            return _unless_all(
                [loader_settings for loader_settings in training.entries("model") if loader_settings["convolutions"]], "last"
            )
        case _:
            return {"steps": GC_INTERVAL_STEPS} if slug == "gc-every-n-steps" else {}


def _unless_all(entries: Sequence[Mapping[str, Any]], key: str) -> Mapping[str, Any] | str:
    """Return no values for a change of ``entries`` that sets ``key``, or why it does not apply."""
    if not entries:
        return NOT_APPLICABLE
    return ALREADY_DONE if all(entry[key] for entry in entries) else {}


def _optimizer(kernel: str, training: TrainingNotes) -> Mapping[str, Any] | str:
    """Return the values of the change to ``kernel`` (fused or foreach), or why it does not apply."""
    optimizers = [optimizer for optimizer in training.entries("optimizer") if kernel in optimizer["accepts"]]
    if not optimizers:
        return NOT_APPLICABLE
    if all(optimizer[kernel] for optimizer in optimizers) or _updates_by(kernel, training):
        return ALREADY_DONE
    return {"kind": optimizers[0]["kind"]}


def _updates_by(kernel: str, training: TrainingNotes) -> bool:
    """Return whether every optimizer step already used ``kernel`` (fused or foreach)."""
    prefix = {"fused": "_fused_", "foreach": "_multi_tensor_"}[kernel]
    functions = [entry["way"] for entry in training.entries("update")]
    return bool(functions) and all(function.startswith(prefix) for function in functions)


def _workers(finding: Finding | None, result: RunResult, training: TrainingNotes) -> Mapping[str, Any] | str:
    """Return the number of workers to try (advised, else the smallest sufficient), or why none is tried."""
    loaders = training.entries("loader")
    if not loaders:
        return NOT_APPLICABLE
    changeable = [loader_settings for loader_settings in loaders if loader_settings["refusal"] is None]
    if not changeable:
        return str(loaders[0]["refusal"])
    current = max(loader_settings["workers"] for loader_settings in changeable)
    advised = _advised_workers(finding) if finding is not None else None
    workers = int(advised) if advised else _sufficient_workers(result, current)
    if workers <= current:
        return "The loader has enough workers for its loading time per sample. More workers would not load faster."
    return {"workers": workers}


def _advised_workers(finding: Finding) -> float | None:
    """Return the number of workers that the finding advises; None if it advises something else."""
    if finding.action.amount is not None:
        return finding.action.amount
    matches = [WORKERS_ARGUMENT.search(change.after) for change in finding.changes if change.of_run]
    return next((float(match[1]) for match in matches if match), None)


def _sufficient_workers(result: RunResult, current: int) -> int:
    """Return the fewest workers that reach SUFFICIENT_RATE_SHARE of the highest predicted sample rate."""
    facts = result.manifest.facts
    cost = sample_cost(facts)
    cores = cores_of(facts) if facts.loader_cores else os.cpu_count() or 1
    if cost is None:
        return max(DEFAULT_WORKERS, 2 * current)
    rates = [predict(cost, number, cores, current or 1) for number in range(1, MAX_WORKERS_PER_CORE * cores + 1)]
    highest = max(rate.value for rate in rates)
    return next(rate.workers for rate in rates if rate.value >= SUFFICIENT_RATE_SHARE * highest)
