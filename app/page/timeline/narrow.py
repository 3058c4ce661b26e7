"""The lists below the timeline for a phone, where a wide table shows only its first column."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from sawtooth.app import format as fmt
from sawtooth.app.charts import timeline as drawing
from sawtooth.app.page import cards, frame

SHOWN = 8  # Rows on a phone; the CSV has all.


def rows(listed: pd.DataFrame, names: Mapping[str, str]) -> list[cards.NarrowRow]:
    """Return the longest rows of a list below the timeline; ``names`` are the run's own names of causes.

    A row shows operations (their name and number) or a wait (its place and time). Its column ``kind`` or ``cause`` selects the colour.
    """
    longest_ms, dark = float(listed["ms"].max()) or 1.0, frame.is_dark()
    colours = drawing.colours(names)
    made = []
    for row in listed.head(SHOWN).to_dict("records"):
        key = str(row["kind"] if "kind" in row else row["cause"])
        label = drawing.kind_label(key, names)
        wait = "at_ms" in row
        place = next((row[c] for c in ("python", "operator") if isinstance(row.get(c), str) and row[c]), label)
        beside = (
            f" at {fmt.duration_ms(row['at_ms'])}" if wait else f" · {fmt.count(row.get('operations', row.get('calls')))} ×"
        )
        made.append(
            cards.NarrowRow(
                name=fmt.clean(str(place), 80) if wait else str(row["short"]),
                address="",
                chosen=False,
                value=f"{fmt.duration_ms(row['ms'])}{beside}",
                bar=f"{row['ms'] / longest_ms:.1%}",
                colour=colours[key].on(dark) if key in colours else "",
                kind=label if not wait or place != label else phase if isinstance(phase := row.get("phase"), str) else "",
            )
        )
    return made
