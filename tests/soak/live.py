"""Push eight GPUs at ten samples a second to a server with three browsers, for half an hour.

    python -m tests.soak.live [--minutes 30] [--gpus 8] [--viewers 3]

It prints its measurements. It exits with 1 if the server's memory grows by more than 1 MB a minute after its windows are
full, if a sample is lost, or if more than 1 % of the viewers' readings are older than three seconds. The age is measured from
end to end: a page shows how many samples it has, and the sampler's own file says when that many had been taken.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import Browser, Error, Page, sync_playwright

from sawtooth.app.server.push import push_token
from tests.support.chromium import executable, log_in
from tests.support.paths import ROOT
from tests.support.servers import Server, start_server, without_bundled

RECORDING = ROOT / "sample_traces" / "resnet_starved" / "nvml.jsonl"
GROWTH_MB_PER_MINUTE = 1.0  # 1.4 GB in a day. A server that runs for weeks is restarted before.
OLDEST_S = 3.0  # Half a second until the push, a second until the page's update, and both may have just been missed.
AGE_SHARE = 0.99  # Share of the readings. The others are printed, because a busy machine may have paused.
# The server's memory grows until its windows are full, which takes five and a half minutes at this rate.
FULL_S = 400.0
SHOWN = re.compile(r"([\d,]+) samples over")


@dataclass
class Measured:
    """Readings of a run: the server's memory, the age of the screens' data, and processor seconds.

    Memory has (seconds, bytes), ages have (seconds, age in seconds).
    """

    memory: list[tuple[float, int]] = field(default_factory=list)
    ages: list[tuple[float, float]] = field(default_factory=list)
    unread: int = 0
    cpu_s: float = 0.0

    def growth_mb_per_minute(self) -> float | None:
        """Return the slope of memory after the windows are full; None if the run ended before."""
        settled = np.array([(t, b) for t, b in self.memory if t >= FULL_S])
        if len(settled) < 20:
            return None
        return float(np.polyfit(settled[:, 0] / 60, settled[:, 1] / 1e6, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--viewers", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sawtooth-soak-") as folder:
        root = Path(folder)
        server = start_server(without_bundled(root / "data"))
        sampler = _sampler(server, root / "sampled", given.gpus)
        try:
            session = _wait_for(root / "sampled")
            measured = _watch(server, session, given.minutes * 60, given.viewers)
            sampler.terminate()
            drained = sampler.wait(60) == 0
            return _report(measured, session, server.data / "live" / session.name, drained)
        finally:
            sampler.kill()
            server.stop()


def _sampler(server: Server, out: Path, gpus: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "sawtooth.ingest.sampler",
        "--replay",
        str(RECORDING),
        "--loop",
        "--copies",
        str(gpus),
        "--name",
        "soak",
    ]
    push = ["--out", str(out), "--push", server.url, "--token", push_token(server.data)]
    return subprocess.Popen([*command, *push], cwd=ROOT, stderr=subprocess.DEVNULL)


def _wait_for(parent: Path) -> Path:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = [p.parent for p in parent.glob("*/samples-0001.jsonl")] if parent.is_dir() else []
        if found:
            return found[0]
        time.sleep(0.2)
    raise RuntimeError("the sampler wrote no session")


def _watch(server: Server, session: Path, seconds: float, viewers: int) -> Measured:
    measured, process = Measured(), psutil.Process(server.process.pid)
    taken = _Taken(session)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        pages = [_viewer(browser, server, session.name, k) for k in range(viewers)]
        began, next_memory, next_line = time.monotonic(), 0.0, 60.0
        while (now := time.monotonic() - began) < seconds:
            for page in pages:
                _read(page, taken, measured, began)
                time.sleep(0.3)
            if now >= next_memory:
                measured.memory.append((now, process.memory_info().rss))
                next_memory = now + 5
            if now >= next_line:
                _say(measured, now)
                next_line = now + 60
        times = process.cpu_times()
        measured.cpu_s = times.user + times.system
        browser.close()
    return measured


def _viewer(browser: Browser, server: Server, session: str, number: int) -> Page:
    """Open the session as one person would: each looks at another GPU and another window."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    log_in(context)
    page = context.new_page()
    window = ("10+s", "1+min", "5+min", "Whole+session")[number % 4]
    until = time.monotonic() + 60
    while True:
        page.goto(f"{server.url}/live?session={session}&window={window}&gpu={number}")
        try:
            page.get_by_text("samples over").wait_for(timeout=15_000)
            return page
        except Error:
            if time.monotonic() > until:
                raise


class _Taken:
    """The time of the sampler's n-th sample, from its own file."""

    def __init__(self, session: Path) -> None:
        self._session = session
        self._times: list[int] = []
        self._segment, self._offset = 1, 0  # The file was read up to this place.

    def at(self, count: int) -> float | None:
        """Return the Unix time of sample ``count``, counted from 1; None if it is not written yet."""
        while len(self._times) < count and self._read_on():
            pass
        return self._times[count - 1] / 1e9 if len(self._times) >= count else None

    def _read_on(self) -> bool:
        """Read the next whole lines; return whether there may be more."""
        # This is checked first. If the next segment exists, nothing more is added to this one.
        followed = self._path(self._segment + 1).exists()
        with self._path(self._segment).open("rb") as file:
            file.seek(self._offset)
            lines, end, _ = file.read(1 << 20).rpartition(b"\n")
        self._times += [int(json.loads(line)["w"]) for line in lines.split(b"\n") if line.startswith(b'{"k":"tick"')]
        self._offset += len(lines) + len(end)
        if not end and followed:
            self._segment, self._offset = self._segment + 1, 0
        return bool(end) or followed

    def _path(self, segment: int) -> Path:
        return self._session / f"samples-{segment:04d}.jsonl"


def _read(page: Page, taken: _Taken, measured: Measured, began: float) -> None:
    try:
        text = page.get_by_text("samples over").first.inner_text(timeout=2_000)
    except Error:
        measured.unread += 1
        return
    found = SHOWN.search(text)
    at = taken.at(int(found[1].replace(",", ""))) if found else None
    if at is None:
        measured.unread += 1
    else:
        measured.ages.append((time.monotonic() - began, time.time() - at))


def _say(measured: Measured, now: float) -> None:
    recent = [age for t, age in measured.ages if t > now - 60] or [float("nan")]
    load = os.getloadavg()[0]
    print(
        f"{now / 60:5.1f} min  memory {measured.memory[-1][1] / 1e6:6.1f} MB  age {np.median(recent):.2f} s, oldest {max(recent):.2f} s  load {load:.1f}",
        flush=True,
    )


def _report(measured: Measured, sent: Path, held: Path, drained: bool) -> int:
    wrong = []
    ages = np.array([age for _, age in measured.ages])
    share = float((ages <= OLDEST_S).mean()) if len(ages) else 0.0
    print(
        f"age on screen: median {np.median(ages):.2f} s, 99 % within {np.quantile(ages, 0.99):.2f} s, oldest {ages.max():.2f} s of {len(ages)}; not read {measured.unread} times"
    )
    if measured.unread > (1 - AGE_SHARE) * (len(ages) + measured.unread):
        wrong.append(f"{measured.unread} times a page could not be read")
    if share < AGE_SHARE:
        wrong.append(f"{1 - share:.1%} of the readings were older than {OLDEST_S:g} s")
    ticks, lost = _compared(sent, held)
    print(f"samples: {ticks} ticks sent, {lost} of them not held by the server; drained: {drained}")
    if lost or not drained:
        wrong.append(f"{lost} samples were lost")
    growth = measured.growth_mb_per_minute()
    first, last = measured.memory[0][1] / 1e6, measured.memory[-1][1] / 1e6
    print(f"server: {first:.0f} MB at first, {last:.0f} MB at last, {measured.cpu_s:.0f} s of processor time")
    if growth is None:
        print(f"memory slope: not measured, it takes longer than {FULL_S / 60:.0f} minutes")
    else:
        print(f"memory slope once full: {growth:+.2f} MB a minute")
        if growth > GROWTH_MB_PER_MINUTE:
            wrong.append(f"memory grows by {growth:.2f} MB a minute")
    print("; ".join(wrong) or "every bar held")
    return 1 if wrong else 0


def _compared(sent: Path, held: Path) -> tuple[int, int]:
    """Return the sampler's ticks, and the number of ticks that are missing or different on the server."""
    ticks = lost = 0
    for segment in sorted(sent.glob("samples-*.jsonl")):
        there = held / segment.name
        lines = set(there.read_bytes().split(b"\n")) if there.exists() else set()
        own_rank = [line for line in segment.read_bytes().split(b"\n") if line.startswith(b'{"k":"tick"')]
        ticks += len(own_rank)
        lost += sum(line not in lines for line in own_rank)
    return ticks, lost


if __name__ == "__main__":
    sys.exit(main())
