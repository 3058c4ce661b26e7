"""The places of the app, the views of each place, and their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, urlencode

T = TypeVar("T", bound="str | list[str]")


@dataclass(frozen=True)
class Screen:
    """One screen: a place of the navigation, or a further view of a place.

    ``name`` is the name of its file in ``app/screens``. The name of a place is also the path of its address. The place itself
    is the first of its views.
    """

    name: str
    title: str
    icon: str = ""
    tab: str = ""  # The screen's label among the tabs of its place, if it is not the title.
    of: str = ""  # The place to which it belongs, unless it is a place itself.
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
    Screen("work", "Work", ":material/memory:", tab="GPU time"),
    Screen("efficiency", "Efficiency", of="work"),
    Screen("memory", "Memory", of="work"),
    Screen("communication", "Communication", of="work"),
    Screen("compare", "Compare", ":material/compare_arrows:", needs_run=False),
    Screen("sql", "SQL", ":material/code:"),
    Screen("reference", "Reference", ":material/menu_book:", needs_run=False),
    Screen("logins", "Logins", ":material/key:", needs_run=False),
)
MENU = ("sql", "reference", "logins")  # Places that the sidebar shows as small links below the other places.
PLACES = tuple(screen.name for screen in SCREENS if not screen.of and screen.name not in MENU)

# The paths of older versions: each view had its own path, and Work was divided into Kernels, Operators and Modules.
_GROUPED_BY = {"kernels": "Kernel", "operators": "Operator", "modules": "Module"}
MOVED = {"": "runs"} | dict.fromkeys(_GROUPED_BY, "work") | {screen.name: screen.name for screen in SCREENS if screen.of}
# The parameters of these three screens as parameters of Work. A choice that is not listed needs no parameter.
_SEARCHES = ("kernel", "operator", "module")
_CHOICES = {
    ("kernels_by", "Category"): {"by": "Category"}, ("kernels_by", "Tensor cores"): {"by": "Category"},
    ("kernels_by", "Operator"): {"by": "Operator"}, ("kernels_by", "Operator and shape"): {"by": "Operator", "by_shape": "true"},
    ("operators_by", "Operator and shape"): {"by": "Operator", "by_shape": "true"}, ("modules_by", "Class"): {"by": "Module", "by_class": "true"},
}  # fmt: skip


def screen_named(name: str) -> Screen:
    """Return the screen with the name ``name``."""
    return next(screen for screen in SCREENS if screen.name == name)


def views_of(place: str) -> tuple[Screen, ...]:
    """Return the views of a place in the order of their tabs; the first is the place itself."""
    return tuple(screen for screen in SCREENS if screen.place == place)


def view_at(place: str, view_name: str | None) -> Screen:
    """Return the view called ``view_name`` of a place, else the first view of the place."""
    views = views_of(place)
    return next((view for view in views if view.name == view_name), views[0])


def with_view(name: str, parameters: Mapping[str, T]) -> dict[str, str | T]:
    """Return ``parameters`` of a screen's address, with ``view`` if it is not the first of its place."""
    return {**({"view": name} if screen_named(name).of else {}), **parameters}


def address(name: str, parameters: Mapping[str, str] | Mapping[str, list[str]]) -> str:
    """Return the path and parameters of a screen's address."""
    query = urlencode(with_view(name, parameters), doseq=True)
    return f"/{screen_named(name).place}{f'?{query}' if query else ''}"


def moved_address(path: str, query: str) -> str:
    """Return the new address, with all parameters, for a path in ``MOVED``."""
    path = path.strip("/")
    parameters = parse_qs(query, keep_blank_values=True)
    form = parameters.pop("view", [])
    new_parameters = {**parameters, "show": form} if path == "" and form else parameters
    return address(MOVED[path], _parameters_of_work(path, new_parameters) if path in _GROUPED_BY else new_parameters)


def moved_runs(query: str) -> str | None:
    """Return the new address of Runs if its ``view`` is the form of the list, now called ``show``.

    The result is None if the address is not old.
    """
    parameters = parse_qs(query, keep_blank_values=True)
    form = parameters.get("view", [""])[-1]
    return moved_address("", query) if form and form not in {view.name for view in views_of("runs")} else None


def moved_work(query: str) -> str | None:
    """Return the new address of Work if it has parameters of Kernels, Operators or Modules.

    The result is None if the address is not old.
    """
    parameters = parse_qs(query, keep_blank_values=True)
    view = parameters.get("view", [""])[-1]
    if view not in _GROUPED_BY and not parameters.keys() & {*_SEARCHES, "kernels_by"}:
        return None
    path = view if view in _GROUPED_BY else "kernels"
    return moved_address(path, urlencode(parameters, doseq=True)) if view in ("", *_GROUPED_BY) else None


def _parameters_of_work(path: str, parameters: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the parameters of Kernels, Operators or Modules as parameters of Work."""
    now = {"by": [_GROUPED_BY[path]]} if path != "kernels" else {}
    for key, values in parameters.items():
        if key in _SEARCHES:
            now["name"] = values
        elif key.endswith("s_by") and key[:-3] in _GROUPED_BY:
            now |= {name: [value] for name, value in _CHOICES.get((key, values[-1]), {}).items()}
        else:
            now[key] = values
    return now
