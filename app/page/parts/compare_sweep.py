"""Further runs below a comparison, which make it a sweep over one setting."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from sawtooth.analysis.compare.sweep import varied_settings
from sawtooth.app.format import clean
from sawtooth.app.page import cards
from sawtooth.app.page.parts import sweep_curve
from sawtooth.app.page.runs import compare_choice
from sawtooth.app.page.runs.compare_choice import Choice
from sawtooth.ingest.manifest import Manifest


def show(choice: Choice, manifest_of: Mapping[str, Manifest], names: Mapping[str, str]) -> None:
    """Offer additional runs; with three or more, show the sweep over the setting in which they differ."""
    with st.expander("Compare three or more runs", icon=":material/show_chart:", expanded=bool(choice.more)):
        _sweep(choice, manifest_of, names)


def _sweep(choice: Choice, manifest_of: Mapping[str, Manifest], names: Mapping[str, str]) -> None:
    compare_choice.picker(compare_choice.MORE, "Further runs", choice.more, (*choice.a, *choice.b), manifest_of, names)
    runs = [manifest_of[run] for run in dict.fromkeys((*choice.a, *choice.b, *choice.more)) if run in manifest_of]
    if len(runs) < 3:
        cards.small(
            "Runs that differ in one setting (for example the tag batch_size=64) become a table and a curve that shows the best value."
        )
        return
    settings = varied_settings(runs)
    if not settings:
        cards.small(
            "These runs differ in no recorded setting. On the Runs page, give each run a tag with its value, such as batch_size=64."
        )
        return
    setting = st.selectbox("Setting", settings, key="setting", bind="query-params") if len(settings) > 1 else settings[0]
    lacking = compare_choice.runs_without_setting(runs, setting)
    if lacking:
        cards.small(f"No {setting} is recorded for {', '.join(clean(m.name, 40) for m in lacking)}.")
        return
    sweep = compare_choice.sweep_of(runs, setting)
    sweep_curve.show(sweep)
    if sweep.other_settings:
        cards.caution(
            f"The runs also differ in {', '.join(sweep.other_settings)}. The curve may show the effect of this difference."
        )
