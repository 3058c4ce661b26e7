"""Record small training loops in several processes each, as they are and with one change, under `sawtooth run`.

    python sample_traces/processes.py --out processes --rounds 3 --seconds 540

Each round records every loop once in a process of its own; the first round also records each loop with its change. A round is a folder of recordings, which
`python -m tests.accuracy.comparisons processes/1 processes/2 …` compares: loops of different rounds, where nothing changed, and each loop with its change.
A recording is a folder with `run.sawtooth`, as the recorder wrote it, and `truth.json`: a stopwatch around the steps before and after the profile.
Other lines call the steps of the stopwatches, so their marks belong to other loops: the stopwatches check the step time on steps that it was not computed from.
Needs PyTorch, a CUDA GPU, nvidia-ml-py and psutil. To try the script itself, use `--device cpu`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDER = [sys.executable, "-c", "from sawtooth.ingest.capture.commands import main; main()", "run"]
WARM_STEPS = 10
WATCH_S = 1.0  # Least seconds of each stopwatch.
PROFILE_AFTER_S = 1.5
TRAIN_S = 4.5  # The loop's length without its warm-up. The profile of five steps lies inside it.
LIMIT_S = 60.0  # A process that takes longer is stopped.

Step = Callable[[], object]


def gpt(
    device: str, *, width: int = 768, heads: int = 12, layers: int = 6, vocabulary: int = 50304, length: int = 512
) -> tuple:
    """Return a small transformer of PyTorch's own layers, its loss as a function of tokens, and tokens."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(vocabulary, width)
            layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.embed(tokens)))

    model = Model().to(device)
    tokens = torch.randint(0, vocabulary, (8, length), device=device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())

    return model, loss


def trained(model: Any, loss: Callable, **adam: Any) -> Step:
    """Return a training step with AdamW."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **adam)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def precision(device: str, changed: bool) -> Iterator[Step]:
    """FP32 → bf16 autocast."""
    import torch

    model, loss = gpt(device)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=changed):
            return loss()

    yield trained(model, cast, fused=True)


def tf32(device: str, changed: bool) -> Iterator[Step]:
    """FP32 products → TF32."""
    import torch

    torch.set_float32_matmul_precision("high" if changed else "highest")
    yield trained(*gpt(device, layers=4), fused=True)


def head(device: str, changed: bool) -> Iterator[Step]:
    """A vocabulary of 50257 → 50304."""
    import torch

    model, loss = gpt(device, vocabulary=50304 if changed else 50257)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return loss()

    yield trained(model, cast, fused=True)


def layout(device: str, changed: bool) -> Iterator[Step]:
    """Convolutions in bf16: channels first → channels last."""
    import torch

    layers: list = []
    for before, after in ((3, 128), (128, 256), (256, 256), (256, 256), (256, 512)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]
    model = torch.nn.Sequential(*layers).to(device)
    images = torch.randn(24, 3, 96, 96, device=device)
    if changed:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
        images = images.to(memory_format=torch.channels_last)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return model(images).float().square().mean()

    yield trained(model, loss, fused=True)


def attention(device: str, changed: bool) -> Iterator[Step]:
    """Attention as two products and a softmax → scaled_dot_product_attention."""
    import torch

    project = torch.nn.Linear(1024, 3072, bias=False).to(device)
    words = torch.randn(4, 2048, 1024, device=device)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            x = words
            for _ in range(4):
                q, k, v = (part.view(4, 2048, 16, 64).transpose(1, 2) for part in project(x).chunk(3, dim=-1))
                if changed:
                    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                else:
                    scores = (q @ k.transpose(-1, -2)) * 0.125
                    mask = torch.ones(2048, 2048, dtype=torch.bool, device=device).triu(1)
                    y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
                x = y.transpose(1, 2).flatten(2)
            return x.float().square().mean()

    yield trained(project, loss, fused=True)


def recomputation(device: str, changed: bool) -> Iterator[Step]:
    """Activation checkpointing of each block → none."""
    import torch
    from torch.utils.checkpoint import checkpoint

    blocks = torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, norm_first=True) for _ in range(6)
    ).to(device)
    words = torch.randn(8, 512, 1024, device=device)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            x = words
            for block in blocks:
                x = block(x) if changed else checkpoint(block, x, use_reentrant=False)
            return x.float().square().mean()

    yield trained(blocks, loss, fused=True)


def small_layers(device: str, width: int = 128, layers: int = 60) -> tuple:
    """Return a deep model of small layers, whose host is the limit, and its loss."""
    import torch

    model = torch.nn.Sequential(*(part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU()))).to(
        device
    )
    rows = torch.randn(64, width, device=device)
    return model, lambda: model(rows).square().mean()


def optimizer(device: str, changed: bool) -> Iterator[Step]:
    """AdamW tensor by tensor → fused."""
    yield trained(*small_layers(device), fused=changed or None, foreach=None if changed else False)


def multi_tensor(device: str, changed: bool) -> Iterator[Step]:
    """AdamW with multi-tensor kernels → fused."""
    yield trained(*small_layers(device, layers=150), fused=changed or None, foreach=None if changed else True)


def reads(device: str, changed: bool) -> Iterator[Step]:
    """The loss and the norm of every gradient are read each step → every 50th step."""
    model, loss = small_layers(device, layers=30)
    inner, number = trained(model, loss, fused=True), 0

    def step() -> None:
        nonlocal number
        inner()
        number += 1
        if not changed or number % 50 == 0:
            sum(parameter.grad.norm().item() for parameter in model.parameters())

    yield step


def cells(device: str, changed: bool) -> Iterator[Step]:
    """A loop over LSTMCell → nn.LSTM."""
    import torch

    model = (torch.nn.LSTM(256, 256, batch_first=True) if changed else torch.nn.LSTMCell(256, 256)).to(device)
    words = torch.randn(32, 64, 256, device=device)

    def loss() -> Any:
        if changed:
            return model(words)[0].square().mean()
        state, outputs = None, []
        for word in words.unbind(1):
            state = model(word, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1).square().mean()

    yield trained(model, loss, fused=True)


def averages(device: str, changed: bool) -> Iterator[Step]:
    """A moving average of the weights, tensor by tensor → one call of torch._foreach_lerp_."""
    import torch

    model, loss = small_layers(device, layers=100)
    inner = trained(model, loss, fused=True)
    parameters = list(model.parameters())
    kept = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def step() -> None:
        with torch.enable_grad():
            inner()
        if changed:
            torch._foreach_lerp_(kept, parameters, 0.01)
        else:
            for mean, parameter in zip(kept, parameters, strict=True):
                mean.mul_(0.99).add_(parameter, alpha=0.01)

    yield step


def small_batches(device: str, changed: bool) -> Iterator[Step]:
    """Eight micro-batches of 16 rows → one of 128."""
    import torch

    model, _ = small_layers(device, width=512, layers=20)
    rows = torch.randn(128, 512, device=device)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    parts = 1 if changed else 8

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        for part in rows.chunk(parts):
            (model(part).square().mean() / parts).backward()
        adam.step()

    yield step


def collections(device: str, changed: bool) -> Iterator[Step]:
    """gc.collect() in every step, over 200,000 objects → none."""
    inner = trained(*small_layers(device), fused=True)
    kept = [[number] for number in range(200_000)]

    def step() -> None:
        inner()
        if not changed:
            gc.collect()
        len(kept)

    yield step


def copies(device: str, changed: bool) -> Iterator[Step]:
    """A pageable batch → pinned memory and non_blocking copies."""
    import torch

    model = torch.nn.Conv2d(3, 128, 7, stride=2).to(device)
    images = torch.randn(96, 3, 224, 224)
    images = images.pin_memory() if changed and device != "cpu" else images

    def loss() -> Any:
        return model(images.to(device, non_blocking=changed)).square().mean()

    yield trained(model, loss, fused=True)


class Samples:
    """A dataset whose samples take a few milliseconds of a core."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> object:
        import torch

        end = time.perf_counter() + 0.003
        value = 0
        while time.perf_counter() < end:
            value += 1
        return torch.full((256,), float(index % 7))


def loader(device: str, changed: bool) -> Iterator[Step]:
    """A loader with one worker → six."""
    import torch

    model, _ = small_layers(device, width=256, layers=10)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=6 if changed else 1))  # type: ignore[arg-type]

    def step() -> None:
        rows = next(batches).to(device)
        adam.zero_grad(set_to_none=True)
        model(rows).square().mean().backward()
        adam.step()

    yield step


def python(device: str, changed: bool) -> Iterator[Step]:
    """Python computes a metric of 4,096 numbers in each step → every 20th step."""
    inner, number = trained(*small_layers(device), fused=True), 0
    values = [float(value) for value in range(40_960)]

    def step() -> None:
        nonlocal number
        inner()
        number += 1
        if not changed or number % 20 == 0:
            sorted(sum(value * value for value in values[start : start + 10]) for start in range(0, len(values), 10))

    yield step


LOOPS = {
    each.__name__: each
    for each in (
        precision, tf32, head, layout, attention, recomputation, optimizer, multi_tensor,
        reads, cells, averages, small_batches, collections, copies, loader, python,
    )
}  # fmt: skip


def train(name: str, device: str, changed: bool) -> dict[str, object]:
    """Run a loop for its time, and return what a stopwatch before and after the profile shows."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(4)
    step = next(LOOPS[name](device, changed))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run(seconds: float) -> tuple[int, float]:
        """Return the number of steps and the seconds, from one idle GPU to the next."""
        wait()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds or count < 3:
            step()
            count += 1
        wait()
        return count, time.perf_counter() - began

    for _ in range(WARM_STEPS):
        step()
    began = time.perf_counter()
    watches = [run(WATCH_S)]
    run(TRAIN_S - 2 * WATCH_S)
    watches.append(run(max(WATCH_S, TRAIN_S - (time.perf_counter() - began))))
    return {"step_s_pipelined": watches[0][1] / watches[0][0], "step_s_after_profile": watches[1][1] / watches[1][0]}


def record(name: str, device: str, changed: bool, folder: Path) -> str:
    """Record one process into its folder, and return a line about it."""
    folder.mkdir(parents=True)
    bundle, truth = folder / "run.sawtooth", folder / "truth.json"
    own = [sys.executable, __file__, "--train", name, "--device", device, "--truth", str(truth), *["--changed"] * changed]
    command = [*RECORDER, "--after", str(PROFILE_AFTER_S), "-o", str(bundle), *own]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, timeout=LIMIT_S, env=environment, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code or not bundle.exists() or not truth.exists():
        return f"exit code {code}, see {folder / 'output.txt'}"
    facts = json.loads(truth.read_text(encoding="utf-8"))
    facts["planted"] = "changed" if changed else LOOPS[name].__doc__
    facts["fixed_by"] = [] if changed else [{"recording": f"{name}_changed", "change": LOOPS[name].__doc__}]
    truth.write_text(json.dumps(facts), encoding="utf-8")
    return f"{1e3 * facts['step_s_pipelined']:.3f} ms before the profile, {1e3 * facts['step_s_after_profile']:.3f} ms after it"


def main(out: Path, rounds: int, seconds: float, device: str, chosen: Sequence[str], *, changes: bool) -> None:
    """Record round after round until the time is over."""
    began, took = time.monotonic(), [10.0]
    for number in range(1, rounds + 1):
        for changed in (False, True) if number == 1 and changes else (False,):
            for name in chosen:
                if time.monotonic() - began + 1.5 * statistics.mean(took) > seconds:
                    print(f"The time is over in round {number}.")
                    return
                start = time.monotonic()
                told = record(name, device, changed, out / str(number) / (f"{name}_changed" if changed else name))
                took.append(time.monotonic() - start)
                print(f"{number} {name}{' changed' * changed}: {told}; {took[-1]:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--unchanged", action="store_true", help="record no loop with its change")
    parser.add_argument("--loops", nargs="*", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--train", choices=list(LOOPS), help=argparse.SUPPRESS)
    parser.add_argument("--truth", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--changed", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        given.truth.write_text(json.dumps(train(given.train, given.device, given.changed)), encoding="utf-8")
    else:
        main(given.out, given.rounds, given.seconds, given.device, given.loops, changes=not given.unchanged)
