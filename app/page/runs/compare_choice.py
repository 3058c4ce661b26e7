"""The runs of a comparison: read them from the address, let the viewer change them, and compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st
from msgspec import structs
from streamlit.delta_generator import DeltaGenerator

from sawtooth.analysis.batch_predictions import with_predictions
from sawtooth.analysis.compare.changed.products import common_share
from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.prediction_record import remember
from sawtooth.analysis.compare.sweep import Sweep, device_memory, sweep, value_of
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.app import places
from sawtooth.app.format import clean, day_and_time, duration_ms
from sawtooth.app.page import cards, current_result, frame
from sawtooth.app.page.default_pair import likely_pair
from sawtooth.app.page.runs import listing, table
from sawtooth.app.runs.card import Card
from sawtooth.app.runs.listing import short_gpu
from sawtooth.app.theme import ACCENT
from sawtooth.ingest.manifest import Manifest

CACHED_COMPARISONS = 32  # Comparisons in memory. Each has a few hundred rows, and viewers of the same link share it.
SIDES = ("a", "b")  # Address parameters of the two sides.
MAX_PARTNERS = 12  # Number of listed runs. Reading the matrix products takes milliseconds for each.
MORE = "more"  # Address parameter of further runs, for a sweep.


@dataclass(frozen=True)
class Choice:
    """The run ids of both sides and of further runs, as in the address.

    ``example`` is true if the page chose the runs, not the viewer.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    more: tuple[str, ...] = ()
    example: bool = False


def read(manifests: Sequence[Manifest], came_from: str | None = None) -> Choice | None:
    """Return the runs that the address names; None if it names none and there are fewer than two runs.

    If the address names none, the result is the likely pair with the run ``came_from``, or that run alone if no other run
    does the same work. This choice is written into the address, so that the viewer can copy it.
    """
    a, b, more = (_ids(key) for key in (*SIDES, MORE))
    if a or b:
        return Choice(a, b, more)
    if len(manifests) < 2:
        return None
    pair = likely_pair(manifests, came_from, frame.products_of_run)
    if pair is None:
        here = (came_from,) if came_from and came_from in {manifest.id for manifest in manifests} else ()
        write(b=here)
        return Choice((), here, more)
    write(a=[pair[0].id], b=[pair[1].id])
    return Choice((pair[0].id,), (pair[1].id,), more, example=True)


def _ids(key: str) -> tuple[str, ...]:
    ids = [part.strip().lower() for part in st.query_params.get(key, "").split(",")]
    return tuple(dict.fromkeys(part for part in ids if part))


def write(**sides: Sequence[str]) -> None:
    """Write run ids into the address in one update, which is one entry in the browser's history.

    A parameter without ids is removed from the address.
    """
    st.query_params.update({key: ",".join(ids) for key, ids in sides.items() if ids})
    for key, ids in sides.items():
        if not ids and key in st.query_params:
            del st.query_params[key]


def swap() -> None:
    """Exchange the two sides."""
    a, b = (_ids(key) for key in SIDES)
    write(a=b, b=a)


def picker(
    key: str,
    label: str,
    chosen: Sequence[str],
    other: Sequence[str],
    manifest_of: Mapping[str, Manifest],
    names: Mapping[str, str],
) -> None:
    """Let the viewer choose the runs of the parameter ``key``, except runs of the ``other`` side.

    ``names`` are the runs' distinct names by id.
    """
    widget = f"compare_{key}"
    st.session_state[widget] = [run for run in chosen if run in manifest_of]
    st.multiselect(
        label,
        [run for run in manifest_of if run in chosen or run not in other],
        format_func=lambda run: names[run],
        key=widget,
        on_change=lambda: write(**{key: st.session_state[widget]}),
        placeholder="Choose a run",
        select_all=False,
    )


def partners(choice: Choice, manifests: Sequence[Manifest], names: Mapping[str, str]) -> None:
    """List runs for the missing side; a click on a run makes it that side.

    Runs with the most similar matrix products come first, then runs on the same GPU. If both sides are missing, the run
    becomes B.
    """
    chosen = next((m for m in manifests if m.id in (*choice.a, *choice.b)), None)
    candidates = [(m, listing.known(m, at_once=False)) for m in manifests if m is not chosen][:MAX_PARTNERS]
    own_card = listing.known(chosen, at_once=False) if chosen is not None else None
    if chosen is not None:
        shapes, on = frame.products_of_run(chosen), _model(own_card)
        candidates.sort(
            key=lambda run_and_card: (
                -(common_share(shapes, frame.products_of_run(run_and_card[0])) or 0),
                not on or _model(run_and_card[1]) != on,
            )
        )
    longest = max((table.step_of(card) or 0.0 for _, card in candidates), default=0.0) or 1.0
    sides = {"a": ",".join(choice.a), "b": ",".join(choice.b)}
    missing = "a" if choice.b else "b"
    cards.narrow_rows(
        [
            _partner(manifest, names[manifest.id], card, sides | {missing: manifest.id}, longest)
            for manifest, card in candidates
        ],
        "Runs to compare with: first change, step, GPU, and when each was added",
    )


def _partner(manifest: Manifest, name: str, card: Card, sides: Mapping[str, str], longest_ms: float) -> cards.NarrowRow:
    """Return the row of a run that is offered as a partner; its bar is its step time ÷ ``longest_ms``."""
    step_ms = table.step_of(card)
    without_step = "no step time" if card.gpu else "not analysed yet"
    change, gpu = table.first_change(card) if card.gpu else "", short_gpu(clean(card.gpu, 40))
    return cards.NarrowRow(
        name=" · ".join(filter(None, (name, change))),
        address=places.address("compare", {key: ids for key, ids in sides.items() if ids}),
        chosen=False,
        value=duration_ms(step_ms) if step_ms else without_step,
        bar=f"{(step_ms or 0.0) / longest_ms:.1%}",
        colour=ACCENT.on(frame.is_dark()),
        kind=" · ".join(filter(None, (gpu, day_and_time(manifest.created_ns)))),
    )


def _model(card: Card | None) -> str:
    """Return the model of a run's GPUs, without their number."""
    return card.gpu.rpartition(" × ")[2] if card is not None else ""


def has_missing_recording(manifest: Manifest) -> bool:
    """Return whether a recording of the run is missing from this data folder."""
    return any(not frame.data_folder().recording_file(ref.id).exists() for ref in manifest.recordings)


def complete(choice: Choice, manifest_of: Mapping[str, Manifest], head: DeltaGenerator) -> bool:
    """Return whether all recordings are here; show which are missing and how to provide them."""
    fine = True
    for side, runs in (("A", choice.a), ("B", choice.b)):
        for run in runs:
            if run not in manifest_of:
                cards.empty_state(
                    f"Side {side} is run {clean(run, 40)}, which this server does not have.",
                    "Ask the person who sent the link for the run as a .sawtooth file and import it, or drop its trace on "
                    "the Runs page. This address then shows the comparison.",
                    f"sawtooth import {clean(run, 16)}.sawtooth",
                )
            elif has_missing_recording(manifest_of[run]):
                sources = ", ".join(clean(ref.source_name, 60) for ref in manifest_of[run].recordings)
                cards.empty_state(
                    f"Side {side} is {clean(manifest_of[run].name, 60)}, whose recording is no longer here.",
                    f"Drop its files again on the Runs page: {sources}. This address then shows the comparison.",
                    "sawtooth ingest FILE…",
                )
            else:
                continue
            fine = False
    if not fine:
        with head:
            cards.headline("This comparison is not complete here.")
    return fine


def comparison_of(a: Sequence[Manifest], b: Sequence[Manifest], names: Mapping[str, str]) -> Comparison:
    """Return the comparison of two sides; viewers share it, so do not change it.

    ``names`` are the runs' distinct names by id, which the comparison uses.
    """
    stamps = tuple((*_stamp(manifest), names[manifest.id]) for manifest in (*a, *b))
    return _compared(
        root=str(frame.data_folder().root), version=ANALYSIS_VERSION, stamps=stamps, left=len(a), _a=tuple(a), _b=tuple(b)
    )


def _stamp(manifest: Manifest) -> tuple[str, int]:
    path = frame.data_folder().manifest_file(manifest.id)
    return manifest.id, path.stat().st_mtime_ns if path.exists() else 0


@st.cache_resource(max_entries=CACHED_COMPARISONS, show_spinner="Comparing …")
def _compared(
    root: str,
    version: int,
    stamps: tuple[tuple[str, int, str], ...],
    left: int,
    _a: tuple[Manifest, ...],
    _b: tuple[Manifest, ...],
) -> Comparison:
    names = {run: name for run, _, name in stamps}

    def side(manifests: tuple[Manifest, ...]) -> Side:
        runs = [current_result.run_result(manifest) for manifest in manifests]
        named = [replace(run, manifest=structs.replace(run.manifest, name=names[run.manifest.id])) for run in runs]
        return side_of(named, frame.library())

    comparison = compare(side(_a), side(_b))
    if comparison.prediction is not None:
        remember(frame.data_folder(), _a[0].id, _b[0].id, comparison.prediction)
    return comparison


def sweep_of(manifests: Sequence[Manifest], setting: str | None) -> Sweep:
    """Return the sweep over runs; a sweep over batch sizes also contains predictions from a trace.

    Raises UsageError if the runs differ in no setting.
    """
    stamps = tuple(_stamp(manifest) for manifest in manifests)
    return _swept(str(frame.data_folder().root), ANALYSIS_VERSION, stamps, setting, _manifests=tuple(manifests))


@st.cache_resource(max_entries=CACHED_COMPARISONS, show_spinner="Arranging …")
def _swept(
    root: str, version: int, stamps: tuple[tuple[str, int], ...], setting: str | None, _manifests: tuple[Manifest, ...]
) -> Sweep:
    results = [current_result.run_result(manifest) for manifest in _manifests]
    memory = {result.manifest.id: device_memory(result, frame.library()) for result in results}
    return with_predictions(sweep(results, setting, memory), dict.fromkeys(memory, frame.library()))


def runs_without_setting(manifests: Sequence[Manifest], setting: str) -> list[Manifest]:
    """Return the runs without the setting."""
    return [manifest for manifest in manifests if value_of(manifest, setting) is None]
