"""The places of the app, the views of each place, and their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, urlencode

T = TypeVar("T", bound="str | list[str]")


@dataclass(frozen=True)
class Screen:
    """One screen: a place of the navigation, or a further view of one.

    ``name`` is its file in ``app/screens``. The name of a place is also the path of its address, and its first view.
    """

    name: str
    title: str
    icon: str = ""
    tab: str = ""  # its name among the views of its place, if that is not the title
    of: str = ""  # the place whose view it is, unless it is a place itself
    needs_run: bool = True

    @property
    def place(self) -> str:
        """The name of the place to which the screen belongs."""
        return self.of or self.name


SCREENS: tuple[Screen, ...] = (
    Screen("runs", "Runs", ":material/stacks:", needs_run=False),
    Screen("live", "Live", of="runs", needs_run=False),
    Screen("verdict", "Verdict", ":material/gavel:", tab="Answer"),
    Screen("audit", "Audit", of="verdict"),
    Screen("timeline", "Timeline", ":material/view_timeline:"),
    Screen("idle", "Idle", of="timeline"),
    Screen("ranks", "Ranks", of="timeline"),
    Screen("telemetry", "Telemetry", of="timeline"),
    Screen("work", "Work", ":material/memory:", tab="Kernels"),
    Screen("operators", "Operators", of="work"),
    Screen("modules", "Modules", of="work"),
    Screen("efficiency", "Efficiency", of="work"),
    Screen("memory", "Memory", of="work"),
    Screen("compare", "Compare", ":material/compare_arrows:", needs_run=False),
    Screen("sql", "SQL", ":material/code:"),
    Screen("reference", "Reference", ":material/menu_book:", needs_run=False),
    Screen("logins", "Logins", ":material/key:", needs_run=False),
)
MENU = ("sql", "reference", "logins")  # places that the sidebar shows as quiet links below the others
PLACES = tuple(screen.name for screen in SCREENS if not screen.of and screen.name not in MENU)

# The paths of older versions, which had an address of its own for each view, and Kernels for Work.
MOVED = {"": "runs", "kernels": "work"} | {screen.name: screen.name for screen in SCREENS if screen.of}


def screen_named(name: str) -> Screen:
    """Return the screen with the name ``name``."""
    return next(screen for screen in SCREENS if screen.name == name)


def views_of(place: str) -> tuple[Screen, ...]:
    """Return the views of a place in the order of their tabs; the first is the place itself."""
    return tuple(screen for screen in SCREENS if screen.place == place)


def view_at(place: str, asked: str | None) -> Screen:
    """Return the view that the address parameter ``view`` asks for, else the place's first one."""
    views = views_of(place)
    return next((view for view in views if view.name == asked), views[0])


def with_view(name: str, parameters: Mapping[str, T]) -> dict[str, str | T]:
    """Return ``parameters`` of a screen's address, with its ``view`` if it is not its place's first."""
    return {**({"view": name} if screen_named(name).of else {}), **parameters}


def address(name: str, parameters: Mapping[str, str] | Mapping[str, list[str]]) -> str:
    """Return the path and parameters of a screen's address."""
    asked = urlencode(with_view(name, parameters), doseq=True)
    return f"/{screen_named(name).place}{f'?{asked}' if asked else ''}"


def moved(path: str, query: str) -> str:
    """Return the new address, with all parameters, of a path of ``MOVED``."""
    name = MOVED[path.strip("/")]
    kept = parse_qs(query, keep_blank_values=True)
    return address(name, {key: value for key, value in kept.items() if key != "view" or name == "runs"})
