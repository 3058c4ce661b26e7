"""Feed hostile files to the whole product for a given time.

    python -m tests.fuzz.whole_product [--seconds 600] [--seed 1] [--kinds trace,bundle] [--pages 3] [--keep FOLDER]

The product is ingest, report, comparison, HTML, Markdown, text, the API and the pages. A file must be refused in one
sentence or read to the end. A failure is any error but ours, a page that failed, an impossible figure with trust "ok",
a name that became markup or moves a terminal's cursor, or a processor time above SLOW_SECONDS. Files that failed are saved, and the
run ends with code 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.analysis.cluster.mapping import is_summary
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app import library as app_library
from sawtooth.app.api import routes
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.jobs.whole_job import ingest_job
from sawtooth.app.places import SCREENS
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.reports import html as html_report
from sawtooth.app.reports import text as report_text
from sawtooth.app.runs.card import card_of
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.manifests import delete_run
from sawtooth.ingest.schema import DataFolder
from tests.fuzz.hostile import MAKERS, MARKUP, Files
from tests.fuzz.impossible import ImpossibleError, check_finite, check_harmless, check_possible
from tests.fuzz.ingest import corpus, mutated
from tests.support import sound_trace
from tests.support.pages import opened_at

SLOW_SECONDS = 60.0  # Longest processor time for an input.
PAGES = [screen.name for screen in SCREENS if screen.name not in ("reference", "logins")]
TIMELINE = (
    "tiles?sources=gpu&level={n}&index={n}", "tiles?sources=gpu,cpu,gaps,python&level=3&index=0", "slice?source=gpu&id={n}", "slice?source=gaps&id={n}",
    "stretch?start={n}&end=999999999", "find?q={q}&at={n}", "occurrences?rule={q}", "longest?start={n}&end=999999999&nth={n}", "slice?source={q}&id=0",
)  # fmt: skip


def processor_seconds() -> float:
    """Return the processor time of this process and its ended children.

    Other work on the machine does not count.
    """
    return sum(os.times()[:4])


class Stage:
    """A data folder with one intact run.

    Hostile files are ingested into it, and the runs that result are deleted again.
    """

    def __init__(self, root: Path, rng: random.Random, pages: int) -> None:
        self.rng, self.pages = rng, pages
        self.folder = DataFolder(root / "data").create()
        os.environ["SAWTOOTH_DATA"] = str(self.folder.root)
        settings.cache_clear()
        app_library.library_of.cache_clear()
        sound = root / "sound.json"
        sound.write_bytes(sound_trace.text(sound_trace.sound(sound_trace.sound_events(8))))
        (self.sound,) = ingest_into_runs(self.folder, [(sound, "sound.json")]).runs
        self.library = Library(self.folder)
        self.client = TestClient(Starlette(routes=routes()), base_url="http://localhost")
        self.log: list[logging.LogRecord] = []
        handler = logging.Handler(logging.ERROR)
        handler.emit = self.log.append  # type: ignore[method-assign]
        logging.getLogger("sawtooth").addHandler(handler)

    def process(self, files: Files, place: Path) -> str:
        """Process the files to the end and return the result; raise every error that must not happen."""
        paths = []
        for name, content in files:
            (place / name).write_bytes(content)
            paths.append((place / name, name))
        before = self.folder.read_manifest(self.sound.id)
        try:
            runs = {run.id: run for run in self._ingest(paths, place)}
        except SawtoothError as refusal:
            return refusal.code
        if self.folder.read_manifest(self.sound.id) != before:
            raise ImpossibleError("the intact run has changed")
        try:
            for run in runs.values():
                self._read(run)
        finally:
            for run in runs.values():
                if run.id != self.sound.id:
                    delete_run(self.folder, run.id)
        return "read"

    def _ingest(self, paths: list[tuple[Path, str]], place: Path) -> list[Manifest]:
        if all(is_summary(name) for _, name in paths):
            return [ingest_job(self.folder, str(place), sources=[tempfile.gettempdir()]).manifest]
        return ingest_into_runs(self.folder, paths, tolerant=True).runs

    def _read(self, run: Manifest) -> None:
        result = result_of(run, self.library)
        report = report_json(result)
        check_possible(json.loads(json.dumps(report, allow_nan=False)))
        card_of(run, self.library)
        forms: dict[str, Callable[[RunResult], str]] = {
            "md": report_text.markdown,
            "text": report_text.text,
            "html": html_report.run_html,
        }
        for format_name, write in forms.items():
            check_harmless(write(result), format_name)
        self._compare(result)
        self._ask(run)
        for page in self.rng.sample(PAGES, self.pages):
            self._open(page, run)

    def _compare(self, result: RunResult) -> None:
        sides = [side_of([one], self.library) for one in (result_of(self.sound, self.library), result)]
        for a, b in (sides, sides[::-1]):
            comparison = compare(a, b)
            check_finite(json.loads(json.dumps(compare_json(comparison), allow_nan=False)), "comparison")
            check_harmless(comparison_text.markdown(comparison), "md")
            check_harmless(comparison_text.text(comparison), "text")
            check_harmless(html_report.comparison_html(comparison), "html")

    def _ask(self, run: Manifest) -> None:
        recording = next((ref.id for ref in run.traces), "")
        for path in ("", "/report", *(f"/timeline/{one}" for one in self.rng.sample(TIMELINE, 3))):
            n, q = self.rng.choice((0, -1, 7, 62, 1 << 61)), self.rng.choice(("a", "%25", "%00", "aten%3A%3A", "\\"))
            address = f"/api/v1/runs/{run.id}{path}".format(n=n, q=q) + ("&" if "?" in path else "?")
            answer = self.client.get(f"{address}recording={recording}&device=0")
            if answer.status_code >= 500:
                raise ImpossibleError(f"{address} answered {answer.status_code}")

    def _open(self, page: str, run: Manifest) -> None:
        query = {"a": self.sound.id, "b": run.id} if page == "compare" else {"run": run.id}
        self.log.clear()
        test = opened_at(page, **query)
        texts = "\n".join(str(getattr(e.proto, "body", "") or getattr(e.proto, "label", "")) for e in test.main)
        if self.log or len(test.exception) or "This page failed" in texts or "Traceback" in texts or MARKUP in texts:
            cause = self.log[0].exc_info if self.log else None
            message = "".join(traceback.format_exception(cause[1])) if cause else texts[:300]
            raise ImpossibleError(f"the page {page} failed: {message}")


def files_for(rng: random.Random, kinds: list[str], seeds: list[bytes], place: Path) -> tuple[str, Files]:
    """Return the kind of an input, and its files."""
    kind = rng.choice(kinds)
    if kind == "bytes":
        return kind, [("input", mutated(rng, seeds))]
    files = MAKERS[kind](rng, place)
    if rng.random() < 0.1:  # Some of these files also get cut or changed bytes.
        files = [(name, mutated(rng, [content])) for name, content in files]
    return kind, files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join([*MAKERS, "bytes"]))
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=Path("fuzz_failures"))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="sawtooth-fuzz-"))
    rng, seeds = random.Random(options.seed), corpus()
    counts: Counter[str] = Counter()
    failures, slowest = Counter[str](), 0.0
    logging.getLogger(
        "streamlit.runtime.scriptrunner_utils.script_run_context"
    ).disabled = True  # Pages are opened without a server.
    with mock.patch.dict(os.environ):
        stage = Stage(root, rng, options.pages)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            place = Path(tempfile.mkdtemp(dir=root))
            kind, files = files_for(rng, options.kinds.split(","), seeds, place)
            began = processor_seconds()
            try:
                outcome = stage.process(files, place)
                counts[f"{kind}: {'read' if outcome == 'read' else 'refused'}"] += 1
                if (seconds := processor_seconds() - began) > SLOW_SECONDS:
                    raise ImpossibleError(f"took {seconds:.0f} s")
            except Exception as error:
                counts[f"{kind}: failed"] += 1
                reported = (
                    f"{type(error).__name__}: {str(error).splitlines()[-1][:200] if str(error) else ''} at {_where(error)}"
                )
                failures[reported] += 1
                if failures[reported] == 1:
                    traceback.print_exc()
                    remaining = options.keep / f"{options.seed}_{sum(counts.values())}_{kind}"
                    remaining.mkdir(parents=True, exist_ok=True)
                    for name, content in files:
                        (remaining / name).write_bytes(content)
            slowest = max(slowest, processor_seconds() - began)
            shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)
    for reported, times in failures.most_common():
        print(f"{times:5} × {reported}")
    print(
        f"seed {options.seed}: {sum(counts.values())} inputs, {failures.total()} failures, slowest {slowest:.1f} s of a processor; {dict(sorted(counts.items()))}"
    )
    return int(failures.total() > 0)


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


if __name__ == "__main__":
    sys.exit(main())
