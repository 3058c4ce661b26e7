"""A screen opened without a browser, with its texts and charts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from sawtooth.app.places import screen_named, with_view
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.prepared import prepared


def opened_at(screen: str, **query: str) -> AppTest:
    """Return the screen that an address with ``query`` opens."""
    return unopened_at(screen, **query).run()


def unopened_at(screen: str, **query: str) -> AppTest:
    test = AppTest.from_file(str(ROOT / "app" / "dashboard.py"), default_timeout=300)
    test.switch_page(f"screens/{screen_named(screen).place}.py")
    for key, value in with_view(screen, query).items():
        test.query_params[key] = value
    return test


def opened(screen: str, run: str, **query: str) -> AppTest:
    return opened_at(screen, run=run, **query)


def text_of(test: AppTest) -> str:
    """Return every text on the page, including the ``body`` of html elements."""
    assert len(test.exception) == 0
    of_elements = [str(getattr(e.proto, "body", "") or getattr(e.proto, "label", "")) for e in test.main]
    return "\n".join([*_words_of_staircase(test), *of_elements])


def staircase_of(test: AppTest) -> dict[str, Any] | None:
    """Return what the page passes to the plan chart's component; None if it shows none."""
    sent = [json.loads(part.proto.json) for part in test.get("bidi_component") if part.proto.json]
    return next((data for data in sent if isinstance(data, dict) and "states" in data), None)


def headline_of(test: AppTest) -> str:
    """Return the headline of the plan chart, for the changes that are selected at first."""
    drawn = staircase_of(test)
    assert drawn is not None
    return "".join(text for _, text in drawn["states"][str(drawn["choice"])]["title"])


def _words_of_staircase(test: AppTest) -> list[str]:
    drawn = staircase_of(test)
    if drawn is None:
        return []
    state = drawn["states"][str(drawn["choice"])]
    rows = [
        str(change[key])
        for change in drawn["changes"]
        for key in ("name", "title", "fix", "gain", "where", "notes", "diffs", "evidence")
    ]
    return [headline_of(test), state["under"], state["text"], *(" ".join(fact) for fact in state["facts"]), *rows]


def words_of(test: AppTest) -> str:
    """Return every text on the page; check that the page did not fail and left nothing out."""
    text = text_of(test)
    assert "This page failed" not in text, text
    assert "cannot be shown" not in text, text
    return text


def charts(test: AppTest) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]


def run_of(data: DataFolder, *paths: Path) -> str:
    return prepared(data, *paths).id


def numbers(values: object) -> list[float]:
    """Return the numbers of a Plotly trace, whether they are a list or packed."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).tolist()
    return list(values)  # type: ignore[call-overload]


def only_run(data: DataFolder) -> str:
    return data.manifests()[0].id
