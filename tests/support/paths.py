"""Folders of the tests, so that tests need not derive them from the place of their own file."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"  # Recordings that are shipped with the app.
RECORDED_AFTER = ROOT / "tests" / "recordings_after"  # Use these only to evaluate the analysis, not to choose constants.
GRAPH_BREAKS = ROOT / "tests" / "graph_breaks"  # One program under torch.compile, with 0, 1, 5 and 20 graph breaks.
# One training, improved change by change, as the capture helper wrote each run.
USUAL_EXAMPLE = ROOT / "tests" / "usual_example"
RECORDINGS = ROOT / "tests" / "recordings"  # Real recordings with one problem each.
TELEMETRY = ROOT / "tests" / "telemetry"  # One file in each telemetry format.
SHARED = Path(os.environ.get("SAWTOOTH_SHARED", ROOT.parent / "shared"))  # More recordings, if they are available.
