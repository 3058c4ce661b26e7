"""A run's staircase and a comparison's two steps as pictures, and as the output of a notebook."""

from __future__ import annotations

import re
import textwrap

from markupsafe import Markup

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.staircase import Parts, Staircase
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts.step_svg import INK, PictureBar, PicturePart, draw_bars
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.theme import MUTED, Colour, place_of
from sawtooth.app.words import advice, headline
from sawtooth.app.words import run as run_words
from sawtooth.app.words import staircase as words
from sawtooth.app.words.answer.title import after, first_choice, title
from sawtooth.app.words.comparisons import comparison as compare_words
from sawtooth.app.words.comparisons import intervals, setup_changes, step_parts

TITLE_LETTERS, UNDER_LETTERS = 58, 108  # Characters of a line on a slide, in sizes of 56 and 30 px.
MAX_ROWS = 5  # Rows of the table below the picture. ``findings.df()`` has all rows.


def stair_bars(result: RunResult, stairs: Staircase) -> list[PictureBar]:
    """Return the step now, and a bar for the step after each further change of the page's first choice."""
    stairs = words.with_avoidable(stairs, result)
    now = stairs.now
    bars = [PictureBar("Now", run_words.step_time_text(result) or fmt.duration_ms(now.ms), _parts(now.parts))]
    choice, changes_so_far = first_choice(stairs, result), 0
    by_rule = {finding.rule: finding for finding in result.findings}
    for index, rule in enumerate(stairs.changes):
        if not choice >> index & 1:
            continue
        changes_so_far |= 1 << index
        step = stairs.choices[changes_so_far]
        ends = (step.low_ms, step.high_ms) if step.low_ms is not None and step.high_ms is not None else None
        bars.append(
            PictureBar(
                f"{index + 1}  {headline.action(by_rule[rule])}",
                after(now.ms, step),
                _parts(step.parts),
                ends,
                fmt.span_ms(*ends, now.ms) if ends else "",
            )
        )
    return bars


def run_title(result: RunResult, stairs: Staircase | None) -> tuple[str, str]:
    """Return the headline of the Verdict for its first choice of changes, and the lines below it."""
    shown_title = title(stairs, first_choice(stairs, result) if stairs is not None else 0, result)
    *start, last = shown_title.pieces
    sentence = "".join(text for _, text in start).rstrip() + (f", {last[1]}" if last[0] == "badge" else last[1])
    return sentence, " ".join(filter(None, (shown_title.whole, shown_title.under)))


def of_run(result: RunResult, stairs: Staircase | None) -> Markup | None:
    """Return the staircase; None if the run has no step time."""
    if stairs is None:
        return None
    bars = stair_bars(result, stairs)
    alt = "; ".join(f"{bar.caption}: {bar.time}" for bar in bars)
    return draw_bars(bars, f"{run_title(result, stairs)[0]} {alt}")


def run_output(result: RunResult, stairs: Staircase | None) -> str:
    """Return the HTML that a notebook shows of a run: headline, staircase and findings."""
    headline, under = run_title(result, stairs)
    rows = [(f"{n}", f.title, advice.gain_text(result, f), f.confidence) for n, f in advice.numbered(result)[:MAX_ROWS]]
    heads = ("", "What costs time", "Gain of the change", "Confidence")
    svg = of_run(result, stairs)
    return str(templates.render("notebook.html", title=headline, under=under, svg=svg, heads=heads, rows=rows))


def parts_of(comparison: Comparison) -> list[WaterfallBar]:
    """Return the parts of both steps; empty if the steps cannot be divided."""
    steps = step_parts.steps_divided(comparison)
    return step_parts.bars(comparison, steps[0]) if steps else []


def step_bars(comparison: Comparison) -> list[PictureBar]:
    """Return a bar for each of the two steps; empty if the steps cannot be divided."""
    rows, bars = parts_of(comparison), []
    factors = ("", intervals.stated_ratio(comparison))
    names, signs = compare_words.names(comparison), compare_words.both_about(comparison)
    for letter, name, sign, factor in zip("AB", names, signs, factors, strict=True):
        parts = tuple((row.owner, row.cause, row.ms_a if letter == "A" else row.ms_b) for row in rows)
        time = f"{sign}{fmt.duration_ms(sum(ms for *_, ms in parts))}"
        bars.append(PictureBar(letter if name == letter else f"{letter}: {name}", time, _parts(parts), span=factor))
    return bars if rows else []


def of_comparison(comparison: Comparison) -> Markup | None:
    """Return both steps on one scale; bands connect equal parts. None if the steps cannot be divided."""
    if not (bars := step_bars(comparison)):
        return None
    alt = f"{compare_words.headline(comparison)} {'; '.join(f'{bar.caption}: {bar.time}' for bar in bars)}"
    return draw_bars(bars, alt, ribbons=True)


def slide_of(comparison: Comparison) -> str:
    """Return the comparison as an SVG of 16:9, with the headline, the lines below it, and the two steps."""
    headline = lines_of(compare_words.headline(comparison), TITLE_LETTERS)[:2]
    under = lines_of(compare_words.below(comparison), UNDER_LETTERS)[:3]
    text = Markup('<text x="96" y="{}" font-size="{}" font-weight="{}" fill="{}">{}</text>')
    drawn_lines = [text.format(150 + 70 * i, 56, 700, INK.light, line) for i, line in enumerate(headline)]
    under_y = 150 + 70 * len(headline)
    drawn_lines += [text.format(under_y + 44 * i, 30, 400, MUTED.light, line) for i, line in enumerate(under)]
    steps = of_comparison(comparison)
    if steps is not None:  # The nested picture is as wide as the slide without margins.
        steps_y = under_y + 44 * len(under)
        start = Markup('<svg x="96" y="{}" width="1728" height="{}" ').format(steps_y, 940 - steps_y)
        content = re.sub(r' width="\d+" height="\d+" style="[^"]*"', "", str(steps).removeprefix("<svg "), count=1)
        steps = start + Markup(content)
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1920 1080" width="1920" height="1080" font-family="system-ui,sans-serif">'
        '<rect width="1920" height="1080" fill="#FFFFFF"/>{}{}<text x="96" y="1024" font-size="25" fill="{}">Sawtooth</text></svg>'
    ).format(Markup("").join(drawn_lines), steps or "", MUTED.light)


def lines_of(sentence: str, letters: int) -> list[str]:
    """Return ``sentence`` without control characters, in lines of at most ``letters`` characters."""
    return textwrap.wrap(fmt.clean(sentence), letters)


def comparison_output(comparison: Comparison) -> str:
    """Return the HTML that a notebook shows of a comparison: verdict, both steps, and what was changed."""
    return str(
        templates.render(
            "notebook.html",
            title=compare_words.headline(comparison),
            under=compare_words.below(comparison),
            svg=of_comparison(comparison),
            heads=setup_changes.COLUMNS,
            rows=setup_changes.rows(comparison)[:MAX_ROWS],
        )
    )


def _parts(parts: Parts) -> tuple[PicturePart, ...]:
    """Return the time of each colour, useful time first."""
    sums: dict[Colour, float] = {}
    for owner, cause, ms in sorted(parts, key=lambda part: place_of(*part[:2])):
        colour = words.colour_of_part(owner, cause)
        sums[colour] = sums.get(colour, 0.0) + ms
    return tuple(PicturePart(colour, ms) for colour, ms in sums.items() if ms > 0)
