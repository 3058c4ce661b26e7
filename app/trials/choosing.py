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

ENOUGH = 0.9  # Share of the highest predicted sample rate. The smallest number of workers that reaches it is tried.
STARVED = 0.05  # Share of the step: if loading takes at least this, more workers are tried.
FEW_WORKERS = 4  # Workers to try if the loading time of a sample is not known.
PREFETCH, BUCKET_MB, GC_STEPS, LARGER = 4, 100.0, 1000, 2.0  # The values to try; LARGER multiplies the batch size.
NO_GPU = "This change has an effect on a GPU only."
NUMERICS = "This changes the training's numbers. Add --allow-numerics to try it."
BY_HAND = "This change must be made in the code: {fix}"
NOT_THERE = "The training has nothing that this change applies to."
HAS_IT = "The training does this already."
OF_NO_USE = (NOT_THERE, HAS_IT)
PADDING = "group-by-length"  # Slug of the advice to group samples by length, which has to be followed by hand.
MUCH_PADDING = 0.2  # Share of a batch that is padding: grouping by length saves at most this share.
OF_LENGTHS = "shapes-vary"  # The rule that finds padding.
PADDED = "{share} of a batch is padding. This needs a batch sampler that groups samples of similar length."
NUMBER = re.compile(r"num_workers=(\d+)")


@dataclass(frozen=True)
class Candidate:
    """A change to try with its values, and the prediction of its finding (ms per step) if there is one.

    ``by_hand`` is the reason if the change cannot be tried inside the process. If no change fits either, ``slug`` is the
    finding's rule. ``ceiling_ms`` is the largest possible gain.
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
        worst = self.high_ms if self.high_ms is not None else self.predicted_ms
        return step_ms - worst if worst is not None else 0.0

    @property
    def change(self) -> Change | None:
        """The known change, if there is one."""
        return CHANGES.get(self.slug)

    @property
    def code(self) -> str:
        """The lines to put into the code."""
        return self.change.lines(self.values) if self.change is not None else ""


def group_of(candidate: Candidate) -> str:
    """Return a name that is the same for changes that replace each other."""
    return (candidate.change.instead if candidate.change is not None else "") or candidate.slug


class Seen:
    """The settings and objects that the base run's processes noted about the training."""

    def __init__(self, notes: Sequence[Mapping[str, Any]]) -> None:
        self._notes = notes

    def every(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the notes of one kind from all processes."""
        return [entry for notes in self._notes for entry in notes["seen"].get(kind, [])]

    @property
    def gpu(self) -> bool:
        """Whether the training can use a GPU."""
        return any(entry.get("cuda") for entry in self.every("settings"))


def candidates(result: RunResult, notes: Sequence[Mapping[str, Any]], *, numerics: bool = False) -> list[Candidate]:
    """Return the changes by certain gain, then by largest possible gain; changes by hand come last."""
    observations = Seen(notes)
    padded = (result.manifest.facts.loader_padding or 0.0) >= MUCH_PADDING
    findings = [each for each in result.findings if not padded or each.rule != OF_LENGTHS]  # PADDING is the same advice
    every = [each for finding in findings for each in _of_finding(finding, result, observations)]
    every += _of_training(result, observations)
    step_ms = result.metrics["best_step_time_ms"].value or 0.0
    ordered = sorted(_once(every), key=lambda each: (bool(each.by_hand), -each.sure_gain_ms(step_ms), -each.ceiling_ms))
    return [_allow_or_explain(each, observations, numerics) for each in ordered]


def _once(every: Sequence[Candidate]) -> list[Candidate]:
    """Return one candidate for each change: the first with a prediction, or else the first."""
    best: dict[str, Candidate] = {}
    for each in every:
        earlier = best.get(each.slug)
        if earlier is None or (earlier.predicted_ms is None and each.predicted_ms is not None and not each.by_hand):
            best[each.slug] = each
    return list(best.values())


def _allow_or_explain(candidate: Candidate, observations: Seen, numerics: bool) -> Candidate:
    change = candidate.change
    if candidate.by_hand or change is None:
        return candidate
    why = (
        NO_GPU
        if change.needs_gpu and not observations.gpu
        else NUMERICS
        if change.result == "other result" and not numerics
        else ""
    )
    return replace(candidate, by_hand=why) if why else candidate


def _of_finding(finding: Finding, result: RunResult, observations: Seen) -> Iterator[Candidate]:
    """Yield the changes that follow the advice of ``finding``; without such a change, a candidate by hand."""
    of_rule = Candidate(
        finding.rule,
        rule=finding.rule,
        predicted_ms=finding.predicted_step_ms,
        low_ms=finding.predicted_low_ms,
        high_ms=finding.predicted_high_ms,
        ceiling_ms=finding.gain_ms,
    )
    changes = [change for change in CHANGES.values() if finding.rule in change.rules]
    reasons = []
    tried = False
    for change in changes:
        values = _values(change.slug, finding, result, observations)
        if isinstance(values, str):
            reasons += [(change.slug, values)] if values not in OF_NO_USE else []
        else:
            tried = True
            other_advice = change.slug == loader.WORKERS and _advised_workers(finding) is None
            yield (
                Candidate(change.slug, values, ceiling_ms=finding.gain_ms)
                if other_advice
                else replace(of_rule, slug=change.slug, values=values)
            )
    if tried or (finding.severity == "info" and not reasons) or finding.claims == "caution":
        return
    slug, why = reasons[0] if reasons else (finding.rule, BY_HAND.format(fix=finding.fix))
    yield replace(of_rule, slug=slug, by_hand=why)


def _of_training(result: RunResult, observations: Seen) -> Iterator[Candidate]:
    """Yield changes without a finding, which the training's settings and its loader's times suggest."""
    cost, step_ms = sample_cost(result.manifest.facts), result.metrics["best_step_time_ms"].value
    loaders, optimizers = observations.every("loader"), observations.every("optimizer")
    if loaders and cost is not None and step_ms:
        loading_ms = 1e3 * (cost.batch * cost.wall_s + cost.collate_s) / max(int(result.manifest.facts.loader_workers or 0), 1)
        if loading_ms >= STARVED * step_ms:
            yield from _candidate_or_reason(loader.WORKERS, _workers(None, result, observations), loading_ms)
    elif loaders and not any(each["workers"] for each in loaders) and all(each["refusal"] for each in loaders):
        yield Candidate(loader.WORKERS, by_hand=loaders[0]["refusal"])
    ways = [entry["way"] for entry in observations.every("update")]
    if any(way.startswith("_single_tensor_") for way in ways) or any(each["foreach"] is False for each in optimizers):
        yield from _candidate_or_reason(optimizer.FUSED, _optimizer("fused", observations))
        if any(each["foreach"] is False and not each["fused"] for each in optimizers):
            yield from _candidate_or_reason(optimizer.FOREACH, _optimizer("foreach", observations))
    if (share := result.manifest.facts.loader_padding or 0.0) >= MUCH_PADDING:
        most_ms = max((each.gain_ms for each in result.findings if each.rule == OF_LENGTHS), default=0.0)
        yield Candidate(PADDING, by_hand=PADDED.format(share=percent(share)), ceiling_ms=most_ms)
    if observations.every("anomaly"):
        yield Candidate(switches.ANOMALY)
    if any(not each["views"] for each in observations.every("ddp")):
        yield Candidate(parallel.VIEW)


def _candidate_or_reason(slug: str, values: Mapping[str, Any] | str, ceiling_ms: float = 0.0) -> Iterator[Candidate]:
    if not isinstance(values, str):
        yield Candidate(slug, values, ceiling_ms=ceiling_ms)
    elif values not in OF_NO_USE:
        yield Candidate(slug, by_hand=values)


def _values(slug: str, finding: Finding, result: RunResult, observations: Seen) -> Mapping[str, Any] | str:
    """Return the values of a change, or why it does not apply."""
    loaders = observations.every("loader")
    match slug:
        case loader.WORKERS:
            return _workers(finding, result, observations)
        case loader.PERSISTENT | loader.PREFETCH:
            if not any(each["workers"] for each in loaders):
                return NOT_THERE
            return {"factor": PREFETCH} if slug == loader.PREFETCH else {}
        case loader.PINNED:
            return HAS_IT if loaders and all(each["pinned"] for each in loaders) else {} if loaders else NOT_THERE
        case loader.BATCH:
            sizes = [each["batch"] for each in loaders if each["batch"]]
            return {"times": LARGER, "batch": LARGER * max(sizes)} if sizes else NOT_THERE
        case optimizer.FUSED | optimizer.FOREACH:
            return _optimizer(slug.partition("-")[0], observations)
        case parallel.BUCKET:
            return {"mb": BUCKET_MB} if observations.every("ddp") else NOT_THERE
        case parallel.STATIC | parallel.VIEW:
            return {} if observations.every("ddp") else NOT_THERE
        case environment.THREADS:
            return {"threads": 1} if any(each["workers"] for each in loaders) else NOT_THERE
        case outermost.COMPILE | outermost.GRAPHS:
            models = observations.every("model")
            return NOT_THERE if not models else HAS_IT if all(each["compiled"] for each in models) else {}
        case outermost.LAYOUT:
            models = [each for each in observations.every("model") if each["convolutions"]]
            return NOT_THERE if not models else HAS_IT if all(each["last"] for each in models) else {}
        case _:
            return {"steps": GC_STEPS} if slug == "gc-every-n-steps" else {}


def _optimizer(way: str, observations: Seen) -> Mapping[str, Any] | str:
    optimizers = [each for each in observations.every("optimizer") if way in each["accepts"]]
    if not optimizers:
        return NOT_THERE
    if all(each[way] for each in optimizers) or _updates_by(way, observations):
        return HAS_IT
    return {"kind": optimizers[0]["kind"]}


def _updates_by(way: str, observations: Seen) -> bool:
    """Return whether every optimizer step used ``way`` (fused or foreach) already, without a change."""
    start = {"fused": "_fused_", "foreach": "_multi_tensor_"}[way]
    ways = [entry["way"] for entry in observations.every("update")]
    return bool(ways) and all(each.startswith(start) for each in ways)


def _workers(finding: Finding | None, result: RunResult, observations: Seen) -> Mapping[str, Any] | str:
    """Return the number of workers to try (advised, else the smallest sufficient), or why none is tried."""
    loaders = observations.every("loader")
    if not loaders:
        return NOT_THERE
    open_to = [each for each in loaders if each["refusal"] is None]
    if not open_to:
        return str(loaders[0]["refusal"])
    now = max(each["workers"] for each in open_to)
    advised = _advised_workers(finding) if finding is not None else None
    workers = int(advised) if advised else _sufficient_workers(result, now)
    return (
        {"workers": workers}
        if workers > now
        else "The loader has enough workers for the time that it needs for a sample. More would not load faster."
    )


def _advised_workers(finding: Finding) -> float | None:
    """Return the number of workers that the finding advises; None if it advises something else."""
    texts = [match[1] for change in finding.changes if change.of_run and (match := NUMBER.search(change.after))]
    return finding.action.amount if finding.action.amount is not None else float(texts[0]) if texts else None


def _sufficient_workers(result: RunResult, now: int) -> int:
    facts = result.manifest.facts
    cost = sample_cost(facts)
    cores = cores_of(facts) if facts.loader_cores else os.cpu_count() or 1
    if cost is None:
        return max(FEW_WORKERS, 2 * now)
    rates = [predict(cost, number, cores, now or 1) for number in range(1, MAX_WORKERS_PER_CORE * cores + 1)]
    best = max(rate.value for rate in rates)
    return next(rate.workers for rate in rates if rate.value >= ENOUGH * best)
