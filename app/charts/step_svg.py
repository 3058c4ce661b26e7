"""Bars of steps as one SVG, for notebooks and files: without scripts, fonts and links."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from sawtooth.app import format as fmt
from sawtooth.app.theme import ACCENT, MUTED, PAGE, Colour, ink_on, luminance

WIDTH_PX = 920  # Px: the width of a notebook's output on a laptop.
BAR, VALUE = 28, 150  # Px: height of a bar, and room for its time on the right.
CAPTION, GAP, RIBBON = 20, 14, 44  # Px: above a bar, below it, and between two bars with ribbons.
LETTER_PX = 6.6  # Px: mean width of a character at 12 px, rounded up so that a label never leaves its part.
MIN_NAMED = 0.01  # Share of the longest bar: smaller parts have no legend entry.
INK = Colour("text", "#1F2328", "#E6E8EB")
_LINES = {
    "/": "M-2 2l4-4M0 8l8-8M6 10l4-4",
    "\\": "M-2 6l4 4M0 0l8 8M6-2l4 4",
    "x": "M0 8l8-8M0 0l8 8",
    "|": "M4 0v8",
    "-": "M0 4h8",
    "+": "M4 0v8M0 4h8",
    ".": "M3 4h2",
}


@dataclass(frozen=True)
class PicturePart:
    """A part of a bar. Parts with the same label and colour are the same part in all bars."""

    colour: Colour
    ms: float


@dataclass(frozen=True)
class PictureBar:
    """A step: a caption above it, its time, its parts, and the interval of a prediction in ms.

    ``span`` is a second line below the time.
    """

    caption: str
    time: str
    parts: Sequence[PicturePart]
    interval: tuple[float, float] | None = None
    span: str = ""

    @property
    def ms(self) -> float:
        """The length of the bar."""
        return sum(part.ms for part in self.parts)


def draw_bars(bars: Sequence[PictureBar], alt: str, *, ribbons: bool = False) -> Markup:
    """Draw ``bars`` below each other on one scale that starts at 0.

    A dashed outline marks what a bar lost against the bar above it. With ``ribbons``, bands connect equal parts instead,
    and a bar's time is at its end.
    """
    scale = (WIDTH_PX - VALUE) / max((bar.ms for bar in bars), default=1.0)
    colours = list(dict.fromkeys(part.colour for bar in bars for part in bar.parts))
    prefix = f"sawtooth{zlib.crc32(repr(bars).encode()):08x}"
    y, tops, body = 0.0, [], []
    for at, bar in enumerate(bars):
        tops.append(y + CAPTION)
        below = ribbons and at > 0  # Where a ribbon ends, its caption would cover it.
        body.append(_text(0, tops[-1] + (BAR + 15 if below else -6), _cut_to_fit(bar.caption, WIDTH_PX - VALUE), INK.light))
        body.append(_bar(bar, tops[-1], scale, prefix, colours))
        body.append(_time(bar, bar.ms * scale if ribbons else WIDTH_PX - VALUE, tops[-1], strong=ribbons))
        if at and not ribbons:
            body.append(_removed_rect(bars[at - 1].ms, bar.ms, tops[-1], scale))
        y = tops[-1] + BAR + (RIBBON - CAPTION if ribbons and at + 1 < len(bars) else CAPTION + GAP if ribbons else GAP)
    if ribbons:
        body[:0] = [
            _ribbons(current_bar, next_bar, tops[at] + BAR, tops[at + 1], scale)
            for at, (current_bar, next_bar) in enumerate(pairwise(bars))
        ]
    legend, height = _legend(bars, colours, y + 4, prefix)
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" style="max-width:100%;height:auto" role="img" '
        'aria-label="{alt}" font-family="system-ui,sans-serif" font-size="12"><defs>{defs}</defs><rect width="{w}" height="{h}" fill="{page}"/>{body}{legend}</svg>'
    ).format(
        w=WIDTH_PX,
        h=round(height),
        alt=fmt.clean(alt),
        defs=_patterns(colours, prefix),
        page=PAGE.light,
        body=Markup("").join(body),
        legend=legend,
    )


def _text(x: float, y: float, text: str, colour: str, extra: str = "") -> Markup:
    """Return a text at a place; ``extra`` are attributes of ours."""
    return Markup('<text x="{:.1f}" y="{:.1f}" fill="{}"{}>{}</text>').format(
        x, y, colour, Markup(f" {extra}" if extra else ""), fmt.clean(text)
    )


def _cut_to_fit(text: str, room: float) -> str:
    """Return ``text``, cut so that it fits into ``room`` px."""
    return fmt.clean(text, max(2, int(room / LETTER_PX)))


def _bar(bar: PictureBar, y: float, scale: float, prefix: str, colours: Sequence[Colour]) -> Markup:
    pieces, x, longest_ms = [], 0.0, (WIDTH_PX - VALUE) / scale
    for part in bar.parts:
        wide, fill, time = part.ms * scale, part.colour.light, fmt.part_ms(longest_ms, part.ms)
        hint = f"{part.colour.label}: {time}"
        pieces.append(
            Markup('<g><title>{}</title><rect x="{:.2f}" y="{}" width="{:.2f}" height="{}" fill="{}"/>').format(
                hint, x, y, wide, BAR, fill
            )
        )
        if part.colour.texture:
            pieces.append(
                Markup('<rect x="{:.2f}" y="{}" width="{:.2f}" height="{}" fill="url(#{}-{})"/>').format(
                    x, y, wide, BAR, prefix, colours.index(part.colour)
                )
            )
        pieces.append(Markup("</g>"))
        if label := _label_of(part.colour.label, time, wide, x, [ms * scale for ms in bar.interval or ()]):
            pieces.append(_label(label, x, wide, y, fill, textured=bool(part.colour.texture)))
        x += wide
    if bar.interval is not None:
        pieces.append(_whisker(bar.interval, y, scale))
    return Markup("").join(pieces)


def _time(bar: PictureBar, x: float, y: float, *, strong: bool) -> Markup:
    """Return a bar's time, and below it its second line; ``strong`` sets that line in bold."""
    time = _text(x + 12, y + BAR / 2 + (0 if bar.span else 5), bar.time, INK.light, 'font-size="14" font-weight="700"')
    if not bar.span:
        return time
    colour, weight = (ACCENT, 'font-size="13" font-weight="700"') if strong else (MUTED, 'font-size="11"')
    return time + _text(x + 12, y + BAR / 2 + 14, bar.span, colour.light, weight)


def _label_of(name: str, time: str, wide: float, x: float, interval: Sequence[float]) -> str:
    """Return the part's name and time, its time alone, or "": the longest that fits beside the interval."""
    for text in (f"{name} {time}", time):
        half = LETTER_PX * (len(text) + 2) / 2
        free = not interval or x + wide / 2 + half < interval[0] or x + wide / 2 - half > interval[-1]
        if 2 * half <= wide and free:
            return text
    return ""


def _label(text: str, x: float, wide: float, y: float, fill: str, *, textured: bool) -> Markup:
    """Return a label in the middle of a part; on a texture it stands on the part's plain colour."""
    middle, behind = x + wide / 2, Markup("")
    if textured:
        room = LETTER_PX * len(text) + 6
        behind = Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}"/>').format(
            middle - room / 2, y + 5, room, BAR - 10, fill
        )
    return behind + _text(middle, y + BAR / 2 + 4, text, ink_on(fill), 'text-anchor="middle"')


def _whisker(interval: tuple[float, float], y: float, scale: float) -> Markup:
    low, high = (min(max(ms * scale, 0.0), WIDTH_PX - VALUE + 8.0) for ms in interval)
    middle = y + BAR / 2
    path = f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10"
    halo, line = PAGE.light, INK.light
    return Markup(
        '<path d="{0}" stroke="{1}" stroke-width="4" fill="none"/><path d="{0}" stroke="{2}" stroke-width="1.5" fill="none"/>'
    ).format(path, halo, line)


def _removed_rect(above_ms: float, ms: float, y: float, scale: float) -> Markup:
    wide = (above_ms - ms) * scale
    if wide < 3:  # The rectangle is narrower than its outline.
        return Markup("")
    return Markup('<rect x="{:.2f}" y="{}" width="{:.2f}" height="{}" fill="none" stroke="{}" stroke-dasharray="4 3"/>').format(
        ms * scale + 1, y + 0.5, wide - 2, BAR - 1, MUTED.light
    )


def _ribbons(upper: PictureBar, lower: PictureBar, y: float, below: float, scale: float) -> Markup:
    """Return bands from the parts of one bar to the same parts of the next.

    A part that only one of them has becomes a triangle.
    """
    order = list(dict.fromkeys(part.colour for bar in (upper, lower) for part in bar.parts))
    places = [_places(bar, order, scale) for bar in (upper, lower)]
    bands = []
    for colour in order:
        (a, b), (c, d) = places[0][colour], places[1][colour]
        if b - a > 0 or d - c > 0:
            bands.append(
                Markup('<path d="M{:.2f} {}L{:.2f} {}L{:.2f} {}L{:.2f} {}Z" fill="{}" fill-opacity="0.22"/>').format(
                    a, y, b, y, d, below, c, below, colour.light
                )
            )
    return Markup("").join(bands)


def _places(bar: PictureBar, order: Sequence[Colour], scale: float) -> dict[Colour, tuple[float, float]]:
    """Return start and end of each part in px.

    A part that the bar lacks has no width, at its place in ``order``.
    """
    lengths = {part.colour: part.ms * scale for part in bar.parts}
    at, ends = 0.0, {}
    for colour in order:
        ends[colour] = (at, at + lengths.get(colour, 0.0))
        at += lengths.get(colour, 0.0)
    return ends


def _legend(bars: Sequence[PictureBar], colours: Sequence[Colour], y: float, prefix: str) -> tuple[Markup, float]:
    """Return the names of the colours in lines below the bars, and where they end."""
    longest = max((bar.ms for bar in bars), default=1.0)
    named = [
        c for c in colours if max(part.ms for bar in bars for part in bar.parts if part.colour == c) >= MIN_NAMED * longest
    ]
    pieces, x = [], 0.0
    for colour in named:
        wide = 18 + LETTER_PX * len(colour.label) + 18
        if x and x + wide > WIDTH_PX:
            x, y = 0.0, y + 20
        square = Markup('<rect x="{:.1f}" y="{:.1f}" width="12" height="12" fill="{}"/>')
        pieces.append(square.format(x, y, colour.light))
        if colour.texture:
            pieces.append(square.format(x, y, f"url(#{prefix}-{colours.index(colour)})"))
        pieces.append(_text(x + 18, y + 10, colour.label, MUTED.light))
        x += wide
    return Markup("").join(pieces), y + (20 if named else 0)


def _patterns(colours: Sequence[Colour], prefix: str) -> Markup:
    pattern = Markup(
        '<pattern id="{}-{}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="{}" stroke="{}" stroke-opacity="0.4" stroke-width="1.6" fill="none"/></pattern>'
    )
    return Markup("").join(
        pattern.format(prefix, at, _LINES[colour.texture], "#000000" if luminance(colour.light) > 0.3 else "#FFFFFF")
        for at, colour in enumerate(colours)
        if colour.texture
    )
