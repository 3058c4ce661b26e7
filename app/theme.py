"""The colours of owners and causes, the same on every screen, in the report and in both themes.

Lost time is warm and has a texture, so that colour-blind users can distinguish causes. Useful time is blue. Time that nobody
can change is grey. (Okabe–Ito family; every mark has a contrast of at least 3:1 to the page.) A colour never appears without a
word next to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sawtooth.analysis.knowledge import causes, owners
from sawtooth.analysis.knowledge.lost_time import known_by


@dataclass(frozen=True)
class Colour:
    """The label of an owner or cause, and its colours on a light and on a dark page.

    A ``hatched`` colour has a pattern wherever it is drawn. ``texture`` is the pattern of wide areas, as a Plotly pattern
    shape; it is empty for a plain fill.
    """

    label: str
    light: str
    dark: str
    hatched: bool = False
    texture: str = ""

    def on(self, dark: bool) -> str:
        """Return the hex colour for the page's theme."""
        return self.dark if dark else self.light


# Each colour by its name: light, dark, hatched. Owners and causes refer to these names. A new cause needs its own colour.
PALETTE: dict[str, tuple[str, str, bool]] = {
    "blue": ("#0072B2", "#4AA3DF", False),
    "sky": ("#3A93CC", "#9AD1F5", False),
    "pink": ("#C76F9F", "#E3A5C7", False),
    "orchid": ("#B5608F", "#D98DB8", False),
    "amber": ("#B98000", "#F2C14E", False),
    "honey": ("#9A7B00", "#FFE08A", False),
    "vermilion": ("#D55E00", "#FF8A3D", False),
    "crimson": ("#B2182B", "#EF6A6A", False),
    "sienna": ("#A6611A", "#D8A25E", False),
    "ochre": ("#8C6D31", "#CBB26A", False),
    "violet": ("#7B5EA7", "#B39DDB", False),
    "indigo": ("#5B4A8A", "#9A8BC9", False),
    "umber": ("#7A4A2B", "#C08A62", False),
    "coral": ("#D9624A", "#FF9C85", False),
    "plum": ("#8E3A6E", "#C77BAE", False),
    "slate": ("#7F7F7F", "#A6A6A6", False),
    "ash": ("#58758F", "#8FAAC2", False),
    "smoke": ("#8F8F8F", "#7C7C7C", True),
    "stone": ("#929292", "#747474", False),
    "fog": ("#5C5C5C", "#7A7A7A", False),
}
# The textures of the colours of lost time. Colours of similar hue have different textures.
TEXTURES = {
    "pink": "/", "orchid": "\\", "amber": "+", "honey": "|", "vermilion": "/", "crimson": "x", "sienna": "\\", "ochre": ".", "violet": "-",
    "indigo": "|", "umber": "+", "coral": "|", "plum": "-", "smoke": "/", "fog": ".",
}  # fmt: skip


def _colour(label: str, name: str) -> Colour:
    return Colour(label, *PALETTE[name], TEXTURES.get(name, ""))


OWNERS: dict[str, Colour] = {owner.key: _colour(owner.label, owner.colour) for owner in owners.OWNERS}
OWNERS[owners.OUTSIDE_PROFILE] = _colour("outside the profiled steps", "umber")
OWNERS[owners.AVOIDABLE] = _colour("avoidable compute", "coral")
OWNERS |= {
    owners.HOST_OPERATORS: _colour("operators on the host", "sky"),
    owners.HOST_REST: _colour("other work of the host", "ochre"),
    owners.HOST_LOADING: _colour("waiting for batches", "vermilion"),
}
_PLACED = (*owners.COMPUTE_OWNERS, owners.AVOIDABLE, *owners.OWNER_KEYS, owners.OUTSIDE_PROFILE, *owners.HOST_PARTS)
_OWNER_PLACES = {key: place for place, key in enumerate(dict.fromkeys(_PLACED))}
_CAUSE_PLACES = {cause.key: place for place, cause in enumerate(causes.CAUSES)}
CAUSES: dict[str, Colour] = {cause.key: _colour(cause.label, cause.colour) for cause in causes.CAUSES}

UNKNOWN = Colour("unknown", "#8F8F8F", "#757575")
ACCENT = Colour("accent", "#0072B2", "#4AA3DF")
PAGE = Colour("page", "#FFFFFF", "#14171A")
GOOD = Colour("healthy", "#1A7F37", "#56D364")  # Marks a run without a fault.
ALARM = Colour("trouble", "#B3261E", "#F47C74")  # Marks a fault over time, such as a throttled clock.
MUTED = Colour("muted text", "#5F6670", "#A3A7AD")


# Host work on the timeline has muted blues and greys, because it is neither useful nor lost GPU time. A call that is a cause of
# lost time has the colour of that cause.
HOST_KINDS: dict[str, Colour] = {
    "annotation": Colour("annotation", "#6B7C8C", "#8FA1B3"),
    "op": Colour("operator", "#7C95AF", "#6A819A"),
    "launch": Colour("launch call", "#787878", "#9A9A9A"),
    "call": Colour("other runtime call", "#949494", "#6E6E6E"),
    "copy": replace(OWNERS["exposed_memcpy"], label="copy call"),
    "sync": replace(CAUSES["host_sync"], label="waits for the GPU"),
    "allocator": replace(CAUSES["allocator"], label="allocates or frees"),
    "python": Colour("Python call", "#8F88BE", "#726D9C"),
}
STEPS: dict[str, Colour] = {
    "counted": Colour("counted step", "#3F5873", "#7D93AB"),
    "uncounted": Colour("step that is not counted", "#8494A4", "#5F7080"),
}


# Lines of sampled quantities, by column: greens and violets, which no owner or cause uses, so that a measured line is not
# mistaken for one. A quantity without its own colour is drawn in MUTED.
QUANTITIES: dict[str, Colour] = {
    "util_pct": Colour("", "#64748B", "#94A3B8"),
    "gr_active_pct": Colour("", "#00796B", "#4DB6AC"),
    "sm_active_pct": Colour("", "#2E7D32", "#81C784"),
    "tensor_active_pct": Colour("", "#4527A0", "#A995E0"),
    "dram_active_pct": Colour("", "#7A6F14", "#C5CF5A"),
    "power_w": Colour("", "#AD1457", "#F06292"),
    "clock_sm_mhz": Colour("", "#006978", "#4DD0E1"),
    "temp_c": Colour("", "#6A1B9A", "#CE93D8"),
    "mem_used_bytes": Colour("", "#33691E", "#AED581"),
    "cpu_pct": Colour("", "#283593", "#9FA8DA"),
    "workers_cpu_pct": Colour("", "#4A7A29", "#DCE775"),
    "workers_blocked_pct": Colour("", "#880E4F", "#F48FB1"),
    "disk_busy_pct": Colour("", "#37474F", "#B0BEC5"),
}


MIDDLE_LUMINANCE = 0.179  # Black and white text have the same contrast on it: (1.05 × 0.05) ** 0.5 − 0.05.


def colour_of_quantity(column: str) -> Colour:
    """Return the colour of a sampled quantity's line."""
    return QUANTITIES.get(column, MUTED)


def colour_of(owner: str, cause: str | None = None) -> Colour:
    """Return the colour of a ledger row: that of its cause, else that of its owner."""
    key = known_by(owner, cause)
    return CAUSES.get(key) or OWNERS.get(key, UNKNOWN)


def place_of(owner: str, cause: str | None = None) -> tuple[int, int]:
    """Return the sort key of a step's parts: useful time first, then lost time, always in the same order."""
    return _OWNER_PLACES.get(owner, len(_OWNER_PLACES)), _CAUSE_PLACES.get(cause or "", -1)


def luminance(colour: str) -> float:
    """Return the relative luminance of a hex colour, 0 to 1 (WCAG 2.2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(colour: str) -> str:
    """Return black or white, whichever has the higher contrast to ``colour``, which is at least 4.5:1."""
    return "#000000" if luminance(colour) > MIDDLE_LUMINANCE else "#FFFFFF"


def mix(start: str, end: str, share: float) -> str:
    """Return the colour at ``share`` (0 to 1) of the way from hex colour ``start`` to ``end``."""
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (start, end)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(*ends, strict=True))
