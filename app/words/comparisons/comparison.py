"""A comparison in sentences and rows: the same words on the page, in the HTML report, in Markdown and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.reasons import GPU_BESIDE_CPU
from sawtooth.analysis.compare.side import Side, withdrawn_by
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.compare.waterfall import is_grown
from sawtooth.analysis.metrics.step_sources import ESTIMATED, StepSource
from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons import intervals, stretches
from sawtooth.app.words.comparisons.kernels import behind_compute
from sawtooth.app.words.comparisons.two_steps import bars, gpu_worked, steps_divided
from sawtooth.app.words.headline import is_cut_off

WORTH_A_WORD = 0.01  # of the change: parts that move by less together are no words
ID_SHOWN = 6  # characters of an id that tell two runs of one name apart
LONGEST_NAME = 28  # characters: a longer one, as of a file that the profiler named, hides what a sentence says of it


def names(comparison: Comparison) -> tuple[str, str]:
    """Return the sides' names, cleaned; with the beginnings of their ids where both are called alike."""
    if (steps := stretches.step_names(comparison)) is not None:
        return steps
    a, b = fmt.clean(comparison.a.name, 60), fmt.clean(comparison.b.name, 60)
    if a != b:
        return a, b
    first, second = (side.first.manifest.id[:ID_SHOWN] for side in (comparison.a, comparison.b))
    return (f"{a} ({first})", f"{b} ({second})") if first != second else ("A", "B")


def _in_a_sentence(comparison: Comparison) -> tuple[str, str]:
    """Return what the headline calls the sides: their names, and A and B where these are alike or long."""
    a, b = names(comparison)
    alike = stretches.step_names(comparison) is None and comparison.a.name == comparison.b.name
    return ("A", "B") if alike or max(len(a), len(b)) > LONGEST_NAME else (a, b)


def called(comparison: Comparison) -> str | None:
    """Return which runs A and B are, where the headline does not name them; None where it does."""
    if _in_a_sentence(comparison) == names(comparison) or is_one_run(comparison):
        return None
    return "; ".join(f"{side}: {name}" for side, name in zip("AB", names(comparison), strict=True))


def about(side: Side, sources: Sequence[StepSource]) -> str:
    """Return ≈ where a step time is not measured; without GPU work a profiled step is no more than a bound."""
    bound_alone = "profile" in sources and not side.gpu_worked
    return "≈\u00a0" if bound_alone or any(source in ESTIMATED for source in sources) else ""


def step_times(comparison: Comparison) -> str:
    """Return both best step times: ≈ 30 ms → ≈ 26.3 ms."""
    sides = zip((comparison.a, comparison.b), (comparison.best.a, comparison.best.b), comparison.sources, strict=True)
    return " → ".join(
        f"{about(side, sources)}{fmt.duration_ms(ms)}" if ms is not None else "not known" for side, ms, sources in sides
    )


def _beside(comparison: Comparison) -> str:
    """Return both step times where neither is what became of the other: 30 ms and 26.3 ms a step, or 30 ms a step in A, none known of B."""
    known = (comparison.best.a, comparison.best.b)
    if None not in known:
        return f"{step_times(comparison).replace(' → ', ' and ')} a step"
    sides = zip("AB", (comparison.a, comparison.b), known, comparison.sources, strict=True)
    return ", ".join(
        f"{about(side, sources)}{fmt.duration_ms(ms)} a step in {name}"
        if ms is not None
        else f"no step time is known of {name}"
        for name, side, ms, sources in sides
    )


def headline(comparison: Comparison) -> str:
    """Return the verdict in one sentence: of work per second where a step does other work on either side, else of the step."""
    a, b = _in_a_sentence(comparison)
    if comparison.other_model:
        are = "are different programs" if comparison.other_program else "train different models"
        return f"{a} and {b} {are}: {_beside(comparison)}."
    if comparison.cpu_beside_gpu:
        worked = comparison.a.first.lead or comparison.b.first.lead
        where = (worked.device_name if worked is not None else "") or "a GPU"
        ran = [
            f"{name} ran on {where if worked else 'the CPU'}"
            for name, worked in zip((a, b), gpu_worked(comparison), strict=True)
        ]
        return f"{' and '.join(ran)}: {_beside(comparison)}."
    if comparison.throughput is not None:
        return _throughput(comparison.throughput, a, b, step_times(comparison))
    if is_one_run(comparison):
        return f"A and B are the same run: {fmt.clean(comparison.a.name, 60)}."
    word, best = comparison.verdict.word, comparison.best
    if best.a is None or best.b is None:
        if (withdrawn := withdrawn_by(comparison.a, comparison.b)) is not None:
            return f"No verdict. {fmt.clean(withdrawn)}"
        unknown = " and ".join(name for name, ms in ((a, best.a), (b, best.b)) if ms is None)
        return f"No verdict: no step time is known of {unknown}."
    perhaps = "probably " if comparison.verdict.confidence == "low" else ""
    if word in ("faster", "slower") and best.a and best.b:
        if word == "faster":
            return f"{b} is {perhaps}{fmt.times(best.a / best.b)} as fast as {a}: {step_times(comparison)} a step."
        return f"{b} {perhaps}takes {fmt.times(best.b / best.a)} as long as {a}: {step_times(comparison)} a step."
    if comparison.verdict.may_be_none and _little_is_known(comparison.verdict):
        return f"Too little is recorded to tell {b} from {a}: {step_times(comparison)} a step."
    if comparison.verdict.may_be_none:
        return f"No measurable change between {a} and {b}: {step_times(comparison)} a step."
    return f"No verdict on whether {b} differs from {a}: {step_times(comparison)} a step."


def is_one_run(comparison: Comparison) -> bool:
    """Tell whether both sides are the same runs."""
    a, b = ([run.manifest.id for run in side.runs] for side in (comparison.a, comparison.b))
    return a == b


def tab_title(comparison: Comparison) -> str:
    """Return what a browser's tab is called: the verdict, and of which runs."""
    return fmt.clean(" · ".join(filter(None, (headline(comparison).rstrip("."), called(comparison)))))


def _throughput(rate: Throughput, a: str, b: str, steps: str) -> str:
    """Return the verdict on work per second: as 1.39 × the samples of A, with the step times behind it."""
    work = intervals.work_name(rate)
    rates = " → ".join(work_rate(value, rate.unit) for value in (rate.a, rate.b))
    if rate.batch is not None:
        rates = f"{_batches(rate.batch)}, {rates}"
    if rate.verdict.shown:
        return f"{b} does {fmt.times(rate.ratio)} the {work} a second of {a}: {rates}; a step takes {steps}."
    if rate.verdict.may_be_none:
        return f"No measurable change between {a} and {b} in {work} a second: {rates}; a step takes {steps}."
    return f"No verdict on whether {b} and {a} differ in {work} a second: {rates}; a step takes {steps}."


def _batches(ratio: Fraction) -> str:
    """Return how B's batch is to A's: batches of 1 → 64 in proportion."""
    return f"batches of {ratio.denominator:,} → {ratio.numerator:,} in proportion"


def work_rate(per_second: float, unit: str) -> str:
    """Return work per second: 1,240 samples/s, 312 TFLOP/s."""
    return fmt.flop_rate(per_second / 1e12) if unit == "FLOP" else f"{fmt.count(per_second)} {unit}/s"


def below(comparison: Comparison) -> str:
    """Return the line under the headline: what most of the change is, and how sure it is; of two models, by what they are told apart."""
    if comparison.other_model:
        return why_sure(comparison)
    if comparison.cpu_beside_gpu:
        return f"{lacks_gpu_work(comparison)} Their step times say nothing of a change to the training."
    if is_one_run(comparison):
        return "Choose another run as A or B."
    if comparison.best.a is None or comparison.best.b is None:  # the headline says so
        return " ".join(filter(None, (lacks_gpu_work(comparison), cut_off(comparison))))
    sure = how_sure(comparison)
    if sure == "Low confidence.":  # which says little without its reason
        sure = f"{sure} {why_sure(comparison)}"
    lacks, compute = lacks_gpu_work(comparison), behind_compute(comparison) if shown(comparison) else None
    if any(gpu_worked(comparison)):  # one side alone: what that means for the rest comes first
        return " ".join(filter(None, (lacks, why(comparison), compute, sure)))
    return " ".join(filter(None, (why(comparison), compute, sure, lacks)))


def lacks_gpu_work(comparison: Comparison) -> str | None:
    """Return which sides' profiles have no GPU work; None where all have some."""
    sides = (("A", comparison.a), ("B", comparison.b))
    lacking = [name for name, side in sides if not side.gpu_worked and side.first.manifest.traces]
    holds = "profiles of A and B hold" if len(lacking) == 2 else f"profile of {''.join(lacking)} holds"
    return f"The {holds} no GPU work." if lacking else None


def cut_off(comparison: Comparison) -> str | None:
    """Return which sides' traces end before their profiles do; None where all are whole."""
    names = [name for name, side in (("A", comparison.a), ("B", comparison.b)) if any(map(is_cut_off, side.runs))]
    return f"The trace of {' and '.join(names)} is cut off: record it again." if names else None


def shown(comparison: Comparison) -> bool:
    """Tell whether a change is shown, of the step or of the work in a second."""
    return comparison.leading.shown


def certainty(comparison: Comparison) -> str:
    """Return what limits the verdict: GPU work that is missing, its confidence, interval and reason."""
    return " ".join(filter(None, (lacks_gpu_work(comparison), how_sure(comparison), why_sure(comparison))))


def how_sure(comparison: Comparison) -> str:
    """Return the verdict's confidence and interval: Low confidence: a step is 493 to 843 ms shorter (95 % interval)."""
    word, stated = comparison.verdict, comparison.leading
    sure = f"{stated.confidence.capitalize()} confidence"
    if stated.may_be_none and stated.confidence == "low" and not comparison.other_model:
        visible = stated.smallest_visible_share
        sure = (
            "Little is known"
            if visible is None or _little_is_known(stated)
            else f"Only a change above {fmt.share(visible)} would show"
        )
    if comparison.other_model:
        return ""
    if comparison.throughput is not None:  # the interval of its change is of the time that A's work takes, which nobody sees
        return f"{sure}{intervals.of_rate(comparison.throughput)}."
    if word.ci95_ms is None or word.ci95_ms == (0.0, 0.0):
        return f"{sure}."
    return f"{sure}: {intervals.of_change(*word.ci95_ms, intervals.of_ratio(comparison))}"


def _little_is_known(verdict: Verdict) -> bool:
    """Tell whether nothing, or no change below the whole step, would have shown."""
    visible = verdict.smallest_visible_share
    return verdict.confidence == "low" and (visible is None or visible >= 1)


def why_sure(comparison: Comparison) -> str:
    """Return what the verdict's confidence rests on."""
    return fmt.spaced(comparison.leading.why)


def why(comparison: Comparison) -> str | None:
    """Return the part of the step that explains most of its change: 613 ms of the 617 ms saved is data loader. None where none does."""
    steps = steps_divided(comparison)
    if not steps or not comparison.verdict.shown:
        return None
    parts = bars(comparison, steps[0])
    change = sum(part.change_ms for part in parts)
    largest = max((part for part in parts if part.change_ms * change > 0), key=lambda part: abs(part.change_ms), default=None)
    if largest is None:
        return None
    amount, total = fmt.duration_ms(abs(largest.change_ms)), fmt.duration_ms(abs(change))
    done, way = ("saved", "came from") if change < 0 else ("added", "went to")
    if amount == total:
        return f"All {total} {done} {way} {largest.spoken}."
    if abs(largest.change_ms) > abs(change):  # other parts go the other way
        ways = ("fell", "grew") if change < 0 else ("grew", "fell")
        label = largest.spoken[0].upper() + largest.spoken[1:]
        opposite = math.fsum(abs(part.change_ms) for part in parts if part.change_ms * change < 0)
        beside = opposite - abs(largest.change_ms) + abs(change)  # what goes the same way as the largest
        if beside < WORTH_A_WORD * abs(change):
            return f"{label} {ways[0]} by {amount}, and the other parts {ways[1]} by {fmt.duration_ms(opposite)}."
        return f"{label} {ways[0]} by {amount}, other parts {ways[0]} by {fmt.duration_ms(beside)}, and the rest {ways[1]} by {fmt.duration_ms(opposite)}."
    return f"Of the {total} {done}, {amount} {way} {largest.spoken}."


def sentences(comparison: Comparison, *, profiles: bool = True) -> list[str]:
    """Return what a training's later steps lose time to, and what limits the verdict: reasons not to compare, with ``profiles`` where those and runs disagree."""
    limits = [
        *_failures(comparison),
        *filter(None, [stretches.why(comparison)]),
        *([comparison.disagreement] if comparison.disagreement and profiles else []),
        *(
            reason.sentence
            for reason in comparison.reasons
            if reason.key != GPU_BESIDE_CPU and not _is_said(reason.key, comparison)
        ),
    ]
    return [fmt.spaced(sentence) for sentence in limits]


def _failures(comparison: Comparison) -> list[str]:
    """Return what `sawtooth run` says of the trainings that ended with an error."""
    sides = zip("AB", (comparison.a, comparison.b), strict=True)
    return [f"{name}: {fmt.clean(run.manifest.failure)}" for name, side in sides for run in side.runs if run.manifest.failure]


def _is_said(reason: str, comparison: Comparison) -> bool:
    """Tell whether the headline says already what a reason not to compare does: that the steps do other work, or are of different programs."""
    if comparison.other_program:
        return reason != "gpu"
    return reason in ("work", "shapes") and (comparison.other_model or comparison.throughput is not None)


def findings(comparison: Comparison) -> list[tuple[str, list[Finding]]]:
    """Return what one side has found and the other has not, with its heading: what costs time, and no remark on the recording; none of two models."""
    if comparison.strangers:
        return []
    gone = "Fixed" if shown(comparison) and comparison.verdict.word == "faster" else "In A alone"
    grown = [finding for finding in comparison.findings_new if is_grown(finding, comparison.waterfall_run)]
    there = [
        finding for finding in comparison.findings_new if finding not in grown
    ]  # in A too, where something else was to be changed first
    sides = ((gone, comparison.findings_fixed), ("New in B", grown), ("Large enough to matter in B", there))
    costing = [(heading, [finding for finding in each if finding.claims != "caution"]) for heading, each in sides]
    return [(heading, each) for heading, each in costing if each]
