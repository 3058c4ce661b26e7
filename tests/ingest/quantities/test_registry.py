"""Tests of the registry of sampled quantities, and of impossible values, which are dropped."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import duckdb
import pytest

from sawtooth.app.charts.telemetry import PANELS, columns_of
from sawtooth.app.theme import colour_of_quantity
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.quantity import Quantity
from sawtooth.ingest.quantities.registry import BY_COLUMN, QUANTITIES, names_in, possible_ones, possible_value
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.schema import DataFolder

# Column names end with a unit.
UNIT_OF_SUFFIX = {
    "pct": "percent",
    "bytes": "bytes",
    "bps": "bytes/s",
    "w": "W",
    "j": "J",
    "c": "°C",
    "mhz": "MHz",
    "mask": "bits",
    "gen": "generation",
    "width": "lanes",
    "count": "count",
    "last": "number",
}


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.column)
def test_every_row_is_complete(quantity: Quantity) -> None:
    assert quantity.unit == UNIT_OF_SUFFIX[quantity.column.rsplit("_", 1)[1]]
    assert quantity.label and quantity.about[0].isupper()
    assert quantity.panel is None or quantity.panel in PANELS
    assert "nvml_jsonl" in quantity.names, "plain lines of the sampler can be read"
    if quantity.column in COLUMNS:
        assert len(quantity.names["sawtooth_exporter"]) == 1, "the sampler exports a quantity under one name"
    assert possible_value(quantity.column, quantity.range.low) == quantity.range.low
    assert possible_value(quantity.column, quantity.range.high) == quantity.range.high
    for impossible in (quantity.range.low - 1, quantity.range.high * 1.01, math.nan, math.inf, -math.inf, 10**400, True):
        assert possible_value(quantity.column, impossible) is None


def test_a_name_belongs_to_one_quantity() -> None:
    sources = {source for quantity in QUANTITIES for source in quantity.names}
    for source in sources:
        source_names = [name for quantity in QUANTITIES for name in quantity.names.get(source, {})]
        assert len(source_names) == len(set(source_names)) == len(names_in(source)), source
    assert len(BY_COLUMN) == len(QUANTITIES) + len(HOST)
    labels = [quantity.label for quantity in QUANTITIES]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("panel", PANELS)
def test_lines_of_one_panel_share_a_unit_but_not_a_colour(panel: str) -> None:
    columns = columns_of(panel)
    assert columns and len({BY_COLUMN[column].unit for column in columns}) == 1
    for dark in (False, True):
        for one, other in itertools.combinations(columns, 2):
            assert colour_of_quantity(one).on(dark) != colour_of_quantity(other).on(dark)


def test_impossible_values_are_counted() -> None:
    assert possible_ones("util_pct", [0, 50.5, None, -1, 1e9, 100]) == ([0, 50.5, None, None, None, 100], 2)


def test_an_impossible_sample_of_nvml_is_missing_and_counted(tmp_path: Path) -> None:
    values = [{"gpu_util": 40, "power_w": 300.0}, {"gpu_util": 1e9, "power_w": -5}, {"gpu_util": 60, "gpm_occupancy": 1e9}]
    lines = [json.dumps({"t_ns": 1_795_226_089 * 10**9 + i * 10**8, **row}) for i, row in enumerate(values)]
    path = tmp_path / "nvml.jsonl"
    path.write_text('{"meta": true, "name": "NVIDIA H200"}\n' + "\n".join(lines) + "\n")
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    con = duckdb.connect(str(folder.recording_file(ref.id)), read_only=True)
    samples = con.execute("SELECT util_pct, power_w, sm_occupancy_pct FROM samples ORDER BY time_ns").fetchall()
    assert samples == [(40, 300, None), (None, None, None), (60, None, None)]
    diagnostics = con.execute("SELECT key, count, example FROM diagnostics").fetchall()
    assert diagnostics == [("blank_value", 3, "util_pct: 1, power_w: 1, sm_occupancy_pct: 1")]
