"""Record the usual example as a chain: a slow image classifier that gets faster with each change.

    python sample_traces/usual_example.py --out chain

The baseline waits for its data, computes in FP32 and uses small batches. Each variant adds one change to the previous
variant, and runs in a separate process. A stopwatch times the plain loop. Then `sawtooth.capture` records the same loop as a
user would (telemetry, marks, loader's times, trace). The folder of a variant gets `run.sawtooth`, as the helper wrote it but
without host names, machine names and the trace's flow arrows. It also gets `truth.json`, the stopwatch's results. The script
needs PyTorch, a CUDA GPU, Pillow and nvidia-ml-py. To try the script itself, use `--device cpu --tiny`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import platform
import re
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set
import torch.nn.functional as F  # noqa: E402, N812 - the name PyTorch users know
from torch.utils.data import DataLoader  # noqa: E402

from sawtooth.capture import profile  # noqa: E402
from sawtooth.ingest.capture.packing import MANIFEST_MEMBER, write_archive  # noqa: E402
from sawtooth.sample_traces.images import JpegImages  # noqa: E402
from sawtooth.sample_traces.measure import scrub, slim  # noqa: E402
from sawtooth.sample_traces.sets.first.models import ResNet  # noqa: E402

# Seconds of the plain loop before it is timed, so that the loader's queue is in its normal state and cuDNN has chosen its algorithms.
SETTLE_S = 1.5
MIN_STEPS = 10  # Steps before the timing, and in it. With fewer, one slow step would decide the result.
LIMIT_S = 150.0  # A variant that takes longer is stopped.
SIDE = 256  # Pixels of the JPEGs.
GPU_ID = re.compile(rb"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")


@dataclass(frozen=True)
class Variant:
    """How the loop runs; each field is a technique of the usual guides."""

    workers: int = 0
    bf16: bool = False
    channels_last: bool = False
    benchmark: bool = False
    batch: int = 32
    compiled: bool = False


CHAIN = {
    "baseline": Variant(),
    "workers": Variant(workers=14),
    "bf16": Variant(workers=14, bf16=True),
    "channels_last": Variant(workers=14, bf16=True, channels_last=True),
    "benchmark": Variant(workers=14, bf16=True, channels_last=True, benchmark=True),
    "batch": Variant(workers=14, bf16=True, channels_last=True, benchmark=True, batch=256),
    "compiled": Variant(workers=14, bf16=True, channels_last=True, benchmark=True, batch=256, compiled=True),
}
CHANGES = {
    "workers": "14 loader workers, pinned memory and non_blocking copies",
    "bf16": "bf16 autocast",
    "channels_last": "channels_last",
    "benchmark": "cudnn.benchmark",
    "batch": "batch 32 -> 256",
    "compiled": "torch.compile",
}


class Training:
    """The loop of a variant on `device`; `tiny` makes it small enough for a CPU."""

    def __init__(self, variant: Variant, device: str, tiny: bool) -> None:
        self.variant, self.device = variant, device
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # The example uses plain FP32.
        torch.backends.cudnn.benchmark = variant.benchmark
        self.layout = torch.channels_last if variant.channels_last else torch.contiguous_format
        self.model = ResNet((1, 1, 1, 1) if tiny else (2, 2, 2, 2)).to(device)
        self.model.to(memory_format=self.layout)  # type: ignore[call-overload]  # missing in the stubs
        self.forward: Callable[[torch.Tensor], torch.Tensor] = torch.compile(self.model) if variant.compiled else self.model
        self.sgd = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch = min(variant.batch, 4) if tiny else variant.batch
        self.images = JpegImages(self.batch * 100_000, SIDE)
        self.side = 32 if tiny else 224
        self.mean = torch.tensor([124.0, 116.0, 104.0], device=device).view(1, 3, 1, 1)

    def batches(self, tiny: bool) -> Iterator[Any]:
        """Return the batches of a new loader."""
        workers = min(self.variant.workers, 2) if tiny else self.variant.workers
        options: dict[str, Any] = {"pin_memory": self.device != "cpu", "persistent_workers": True} if workers else {}
        return iter(DataLoader(self.images, self.batch, shuffle=False, drop_last=True, num_workers=workers, **options))

    def step(self, batches: Iterator[Any]) -> None:
        """Run one step on the next of `batches`."""
        ahead = self.variant.workers > 0
        images, labels = (tensor.to(self.device, non_blocking=ahead) for tensor in next(batches))
        images = ((images[..., : self.side, : self.side] - self.mean) / 58.0).contiguous(memory_format=self.layout)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.variant.bf16):
            loss = F.cross_entropy(self.forward(images), labels)
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()

    def wait(self) -> None:
        """Wait until the GPU has finished."""
        if self.device != "cpu":
            torch.cuda.synchronize()


def timed(training: Training, seconds: float, tiny: bool) -> dict[str, Any]:
    """Time the plain loop, without profiler and capture helper."""
    batches = training.batches(tiny)
    _run_for(training, batches, SETTLE_S if not tiny else 0.0)
    if training.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    begin, start = time.time_ns(), time.perf_counter()
    steps = _run_for(training, batches, seconds)
    duration_s = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if training.device != "cpu" else None
    return {"step_s": duration_s / steps, "steps_timed": steps, "window_ns": [begin, time.time_ns()], "peak_mem": peak}


def _run_for(training: Training, batches: Iterator[Any], seconds: float) -> int:
    """Run steps for `seconds`, wait for the last, and return their number."""
    training.wait()
    steps, until = 0, time.perf_counter() + seconds
    while steps < MIN_STEPS or time.perf_counter() < until:
        training.step(batches)
        steps += 1
    training.wait()
    return steps


def captured(training: Training, name: str, seconds: float, tiny: bool, target: Path) -> None:
    """Record the loop with the helper, as a user would."""
    settings = {"batch size": training.batch, "loader workers": training.variant.workers}
    with profile(
        target, name=name, samples=training.batch, parameters=training.model, settings=settings, seconds=seconds
    ) as capture:
        batches = training.batches(tiny)
        while not capture.done:
            training.step(batches)
            capture.step()
    if capture.path is None:
        raise RuntimeError("; ".join(capture.why_not))


def rewrite(source: Path, target: Path) -> None:
    """Write the helper's file again without the names of this machine."""
    with zipfile.ZipFile(source) as archive, tempfile.TemporaryDirectory() as scratch:
        manifest, members = archive.read(MANIFEST_MEMBER), {}
        kinds = {r["member"]: r["kind"] for run in json.loads(manifest)["runs"] for r in run["recordings"]}
        for member, kind in kinds.items():
            raw = gzip.decompress(archive.read(member))
            raw = slim(scrub(raw)) if kind == "trace" else raw
            members[member] = Path(scratch) / Path(member).name
            content = signed(anonymous(raw)) if kind == "telemetry" else anonymous(raw)
            members[member].write_bytes(gzip.compress(content, 9, mtime=0))
        write_archive(target, manifest, members)


def anonymous(raw: bytes) -> bytes:
    """Replace the host's name and the GPU's id, in the same way in every file of a recording."""
    host = platform.node().encode()
    return GPU_ID.sub(b"GPU-00000000-0000-0000-0000-000000000000", raw.replace(host, b"trainer") if host else raw)


def signed(raw: bytes) -> bytes:
    """Update the checksum of each line of a session; a wrong checksum means a damaged line."""
    bodies = (line.rpartition(b',"crc":')[0] for line in raw.splitlines())
    return b"".join(b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body)) for body in bodies if body)


def record(name: str, out: Path, seconds: float, device: str, tiny: bool) -> None:
    """Record one variant into `out / name`."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    training = Training(CHAIN[name], device, tiny)
    truth = {"name": name, "change": CHANGES.get(name, ""), **asdict(CHAIN[name]), "samples_per_step": training.batch}
    truth |= timed(training, seconds, tiny)
    with tempfile.TemporaryDirectory() as scratch:
        captured(training, name, seconds, tiny, Path(scratch) / "run.sawtooth")
        rewrite(Path(scratch) / "run.sawtooth", folder / "run.sawtooth")
    truth |= {"samples_per_s": training.batch / truth["step_s"], "torch": torch.__version__}
    truth["gpu"] = torch.cuda.get_device_name() if device != "cpu" else None
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    """Record the chain; exit with 1 if a variant could not be recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("chain"), help="folder that gets one folder per variant")
    parser.add_argument("--only", nargs="+", choices=CHAIN, default=list(CHAIN), metavar="VARIANT")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each stopwatch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model and small batches, to try the script")
    args = parser.parse_args()
    failed = []
    for name in args.only:
        start = time.monotonic()
        job = (name, args.out.resolve(), args.seconds, args.device, args.tiny)
        # A new process, so that no variant inherits another's GPU state.
        child = multiprocessing.get_context("fork").Process(target=record, args=job)
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.terminate()
            child.join()
        truth = args.out / name / "truth.json"
        result = f"{json.loads(truth.read_text())['step_s'] * 1e3:9.3f} ms per step" if child.exitcode == 0 else "FAILED"
        failed += [name] if child.exitcode else []
        print(f"{name:14} {result}, recorded in {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


if __name__ == "__main__":
    main()
