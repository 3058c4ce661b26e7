"""GPU time as a treemap whose tiles have the colours of the ledger's owners."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.charts.base import Chart, LegendEntry, with_layout
from sawtooth.app.theme import MUTED, OWNERS, PAGE, ink_on, mix

MAX_LABEL_CHARACTERS = 60  # Characters of a tile's name.
FRAME_OPACITY = 0.16  # Share of the muted colour in the frame around the tiles of a group.
HEIGHT_PX = 392  # Pixels: that of the table beside it.
TILES_PX = 340 * 300  # Square pixels of the tiles, about: the width follows the page, and frames need room too.
FONT = 11  # Pixels. A text without room is not shown.
LETTER, LINE = 6.1, 14.3  # Pixels of a letter's width and a line's height.
SEPARATOR = "\u241f"  # Between the names of an id. No name of a kernel or module contains this symbol.
NARROW_RATIO = 0.7  # The width of a narrow tile, relative to that of a square of the same area.
MIN_LETTERS = 10  # A narrower tile has only the word for its work, such as "dgrad": pieces of some letters cannot be read.
ROOT = "all"
REST = "others"  # The last name of the tile for all tiles of a frame without room for a name.
# A name may break after each: after "_" or "::", and before a capital letter within a word.
_WORD = re.compile(r"(?:· )?(?:[^_\s…:]|:(?!:))(?:(?<![a-z])[^_\s…:]|[^_\s…:A-Z]|:(?!:))*(?:_|…|::)?\s?|[_…:]")


class Tile(NamedTuple):
    """One rectangle: the names from the outermost frame to it, its ms, and the owner of most of its time.

    ``owner`` is empty for a frame. Its time is the sum of the tiles inside the frame.
    """

    path: tuple[str, ...]
    label: str
    ms: float
    owner: str = ""

    @property
    def id(self) -> str:
        """The id by which the browser names it."""
        return SEPARATOR.join(self.path)


def names_of(tile_id: str) -> tuple[str, ...]:
    """Return the names from the outermost frame to the tile with this id."""
    return tuple(tile_id.split(SEPARATOR))


def treemap(tiles: Sequence[Tile], title: str, unit: str, *, dark: bool) -> Chart:
    """Draw tiles whose areas are their times; frames must be among ``tiles``.

    Tiles without room for a name are added up in their frame.
    """
    total_ms = sum(tile.ms for tile in tiles) or 1.0
    drawn_tiles = _tiles_to_draw(tiles, total_ms)
    drawn_tiles = [Tile((), f"GPU time: {fmt.duration_ms(total_ms)} {unit}", 0.0), *drawn_tiles]
    frame = mix(PAGE.on(dark), MUTED.on(dark), FRAME_OPACITY)
    colours = [OWNERS[tile.owner].on(dark) if tile.owner else frame for tile in drawn_tiles]
    figure = go.Figure(
        go.Treemap(
            ids=[tile.id or ROOT for tile in drawn_tiles],
            parents=[SEPARATOR.join(tile.path[:-1]) or ROOT if tile.path else "" for tile in drawn_tiles],
            labels=[fmt.plain(tile.label, MAX_LABEL_CHARACTERS if tile.path else None) for tile in drawn_tiles],
            values=[tile.ms for tile in drawn_tiles],
            branchvalues="remainder",
            text=[_text(tile, total_ms) for tile in drawn_tiles],
            texttemplate="%{text}",
            hovertemplate="%{customdata}<extra></extra>",
            customdata=[
                f"{fmt.plain(' › '.join(tile.path), 200)}<br>{f'{fmt.duration_ms(tile.ms)} {unit}' if tile.owner else ''}"
                for tile in drawn_tiles
            ],
            marker={"colors": colours, "line": {"width": 1, "color": PAGE.on(dark)}, "pad": {"t": 24, "l": 2, "r": 2, "b": 2}},
            textfont={"color": [ink_on(colour) for colour in colours], "size": FONT},
            tiling={"pad": 1},
            pathbar={"visible": False},
            sort=True,
        )
    )
    with_layout(figure, HEIGHT_PX)
    figure.update_layout(margin={"l": 0, "r": 0, "t": 0, "b": 0}, uniformtext={"minsize": FONT, "mode": "hide"})
    largest = sorted((tile for tile in tiles if tile.owner), key=lambda tile: -tile.ms)[:5]
    alt = f"Treemap of GPU time. Largest: {', '.join(f'{fmt.clean(t.label, 40)} {fmt.duration_ms(t.ms)}' for t in largest)}."
    owners = [key for key in OWNERS if any(tile.owner == key for tile in drawn_tiles)]
    legend = tuple(LegendEntry(OWNERS[key].label, OWNERS[key].on(dark)) for key in owners)
    return Chart(figure, title, alt, pd.DataFrame(), legend=legend)


def _text(tile: Tile, total_ms: float) -> str:
    """Return what fits into a tile: its name, or a part of it, and below it its time."""
    if not tile.owner:
        return fmt.plain(tile.label, MAX_LABEL_CHARACTERS if tile.path else None)
    time, share = fmt.duration_ms(tile.ms), fmt.share(tile.ms / total_ms)
    letters, _ = _room(tile.ms / total_ms)
    times = [f"{time} · {share}" if letters >= len(time + share) + 3 else time] if letters >= len(time) else []
    return "<br>".join(fmt.plain(line, None) for line in [*_name(tile, total_ms), *times])


def _room(share: float) -> tuple[int, int]:
    """Return how many letters a line of a tile has, and how many lines there are for its name.

    Tiles are about square. A text that does not fit would be hidden, so the tile is assumed to be narrow.
    """
    side = NARROW_RATIO * math.sqrt(share * TILES_PX)
    return int(side / LETTER), int(side / LINE) - 1


def _name(tile: Tile, whole: float) -> list[str]:
    """Return a tile's name in lines: as much of it as fits, else one word; empty if no word fits."""
    letters, lines = _room(tile.ms / whole)
    label = fmt.clean(tile.label, MAX_LABEL_CHARACTERS)
    if letters >= MIN_LETTERS and (rows := wrapped(label, letters, lines)):
        return rows
    functor_first = " ".join(reversed(label.removeprefix("aten::").split(" · ")))
    words = [rankings.work_of(tile.path[-1]), *(word.strip(" ·_…:") for word in _WORD.findall(functor_first))]
    words = [f"+{label.split()[0]}"] if tile.path[-1] == REST else words
    return next(([word] for word in words if len(word) > 1 and word != "kernel" and lines > 0 and len(word) <= letters), [])


def wrapped(name: str, letters: int, lines: int) -> list[str]:
    """Return a name in up to ``lines`` lines of ``letters`` letters, with "…" if more follows.

    A word is never cut. The result is empty if the first word is longer than a line.
    """
    rows: list[str] = []
    for word in _WORD.findall(name):
        if rows and len(rows[-1]) + len(word.rstrip()) <= letters:
            rows[-1] += word
        elif len(rows) < lines and len(word.strip()) <= letters:
            rows.append(word.lstrip())
        else:
            return _with_dots(rows, letters)
    return [row.strip() for row in rows]


def _with_dots(rows: list[str], letters: int) -> list[str]:
    """Return the rows with "…" at the end, if the last row has room for it."""
    if not rows:
        return []
    last = rows[-1].strip().rstrip("_…·: ")
    return [*(row.strip() for row in rows[:-1]), f"{last}…" if len(last) < letters else last]


def _tiles_to_draw(tiles: Sequence[Tile], whole: float) -> list[Tile]:
    """Return the tiles with room for a name, their frames, and one tile for the others of each frame.

    The tiles of a frame without room for its own name are among the others of the next larger frame.
    """
    total_ms: dict[tuple[str, ...], float] = {}
    for tile in tiles:
        for depth in range(1, len(tile.path) + 1):
            total_ms[tile.path[:depth]] = total_ms.get(tile.path[:depth], 0.0) + tile.ms
    wide = {tile.path for tile in tiles if _frame_fits(tile, total_ms[tile.path] / whole)}
    frames = {path[:-1] for path in total_ms if len(path) > 1}

    def shown(tile: Tile) -> bool:
        frames_fit = all(tile.path[:depth] in wide for depth in range(1, len(tile.path)))
        return frames_fit and (tile.path in wide or tile.path not in frames) and bool(_name(tile, whole))

    named = [tile for tile in tiles if tile.owner and shown(tile)]
    kept_paths = {tile.path[:depth] for tile in named for depth in range(1, len(tile.path) + 1)}
    small_tiles: dict[tuple[str, ...], list[Tile]] = {}
    for tile in tiles:
        if tile.owner and tile.path not in kept_paths:
            parent_path = tile.path[:-1]
            while parent_path and parent_path not in kept_paths:
                parent_path = parent_path[:-1]
            small_tiles.setdefault(parent_path, []).append(tile)
    other_tiles = [
        Tile(
            (*parent_path, REST),
            f"{len(small)} other{'s' if len(small) > 1 else ''}",
            sum(t.ms for t in small),
            max(small, key=lambda t: t.ms).owner,
        )
        for parent_path, small in small_tiles.items()
    ]
    return [*(tile for tile in tiles if tile.path in kept_paths), *other_tiles]


def _frame_fits(tile: Tile, share: float) -> bool:
    """Return whether a frame with this share of all time is wide enough for its name."""
    return len(tile.label) * LETTER <= math.sqrt(share * TILES_PX)
