"""Modules that take less or more GPU time in B than in A, if both traces have module calls."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import modules as module_tables
from sawtooth.app.charts import modules as charts
from sawtooth.app.page import current_result, frame, panel


def show(a: RankResult | None, b: RankResult | None) -> None:
    """Show the modules of both runs as an icicle chart; shows nothing if one side has no module calls."""
    if a is None or b is None:
        return
    trees = [_tree(a), _tree(b)]
    if any(tree.empty for tree in trees):
        return
    rows = module_tables.module_changes(*trees)
    panel.show(charts.difference(rows, charts.difference_title(rows), dark=frame.is_dark()), "module-changes")


@st.cache_data(max_entries=64, show_spinner="Adding up modules …", hash_funcs={RankResult: current_result.key_of})
def _tree(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return module_tables.modules(view)
