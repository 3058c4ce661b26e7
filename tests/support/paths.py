"""Where the tests find things: nobody counts the folders above a file."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"  # the recordings that ship with the app
RECORDED_AFTER = ROOT / "tests" / "recordings_after"  # judge by these, choose nothing by them
GRAPH_BREAKS = ROOT / "tests" / "graph_breaks"  # one program under torch.compile, its graph broken 0, 1, 5 and 20 times
USUAL_EXAMPLE = ROOT / "tests" / "usual_example"  # one training, mended change by change, as the capture helper wrote each
RECORDINGS = ROOT / "tests" / "recordings"  # real recordings with one trouble each
TELEMETRY = ROOT / "tests" / "telemetry"  # a file in each telemetry format
SHARED = Path(os.environ.get("SAWTOOTH_SHARED", ROOT.parent / "shared"))  # more recordings, where they are at hand
