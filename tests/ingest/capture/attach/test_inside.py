"""Tests of the hooks of `sawtooth attach` inside the training, and of their removal."""

import contextlib
import importlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.capture.attach import attach as attaching
from sawtooth.ingest.capture.attach.attach import AttachOptions
from sawtooth.ingest.capture.command import hook
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.settings import HookSettings
from sawtooth.ingest.capture.command.without_optimizer import timed_profile
from sawtooth.ingest.capture.command.without_optimizer.outermost_module import CALL_ATTRIBUTE


def marks_in(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()][1:]


def test_a_hook_without_renewal_ends_itself(tmp_path: Path) -> None:
    """A recorder that was killed cannot remove the hook."""
    torch = pytest.importorskip("torch")
    from sawtooth.ingest.capture.attach import inside

    class Clock:
        now_ns = 0

        def __call__(self) -> int:
            return self.now_ns

    clock, folder = Clock(), tmp_path / "recording"
    folder.mkdir()
    for name, text in ((inside.LEASE_FILE, ""), (inside.BEGIN_FILE, "10")):
        (folder / name).write_text(text)
    attached = inside.Attachment(HookSettings(folder, 0, 1.0, None, 1, 1), clock)
    evaluate, leave = torch.nn.Module.eval, os._exit
    optimizers = importlib.import_module("torch.optim.optimizer")
    attached.begin(optimizers, time_loader=True)
    try:
        assert torch.nn.Module.eval is not evaluate and os._exit is not leave
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters())
        for clock.now_ns in (0, 20, 30 + inside.LEASE_NS // 2, 40 + 2 * inside.LEASE_NS, 50 + 2 * inside.LEASE_NS):
            optimizer.step()
        assert attached.is_over and torch.nn.Module.eval is evaluate and os._exit is leave
        (marks,) = folder.glob("marks-*.jsonl")
        assert len(marks_in(marks.read_bytes())) == 2  # Steps before all ranks begin, and after the end, are not marked.
    finally:
        attached.remove()
    assert not optimizers._global_optimizer_post_hooks


@pytest.mark.parametrize("boundary", ["backward", "batch", "call"])
def test_a_loop_without_an_optimizer_is_marked_at_its_boundary(tmp_path: Path, boundary: str) -> None:
    torch = pytest.importorskip("torch")
    from sawtooth.ingest.capture.attach import inside

    class Model(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            time.sleep(0.02 if boundary == "call" else 0.0)
            return super().forward(x)

    optimizers = importlib.import_module("torch.optim.optimizer")
    loaders = importlib.import_module("torch.utils.data.dataloader")
    model = Model(2, 2)

    def patched() -> list[Any]:
        iterator = loaders._BaseDataLoaderIter
        return [torch.autograd._engine_run_backward, iterator.__next__, os._exit, model.__dict__.get(CALL_ATTRIBUTE)]

    def train(min_steps: int) -> None:
        limit, batches = time.monotonic() + 240, iter(loaders.DataLoader(torch.ones(10**6, 2)))
        for step in range(10**6):
            batch = next(batches) if boundary == "batch" else torch.ones(1, 2)
            if boundary == "backward":
                model(batch).sum().backward()
            if boundary == "call":
                model(batch)
            if step >= min_steps and (
                attached.is_over or (attached.detector.boundary == boundary and attached.detector._steps >= min_steps)
            ):
                break
            assert time.monotonic() < limit

    before = patched()
    (tmp_path / inside.LEASE_FILE).touch()
    attached = inside.Attachment(HookSettings(tmp_path, 0, 1.0, None, 1, 1))
    attached.begin(optimizers, time_loader=False)
    try:
        for _ in range(5 if boundary == "backward" else 0):
            model(torch.ones(1, 2)).sum().backward()
        assert attached.detector.boundary is None  # The detector waits until all ranks begin.
        (tmp_path / inside.BEGIN_FILE).write_text("0")
        train(20)
        assert patched() != before
    finally:
        attached.remove()
    assert patched() == before and not optimizers._global_optimizer_post_hooks
    (marks,) = tmp_path.glob("marks-*.jsonl")
    written = marks.read_text()
    assert json.loads(written.splitlines()[0])["sign"] == boundary
    assert len(marks_in(marks.read_bytes())) >= 20
    attached.is_over = True
    train(1)
    assert marks.read_text() == written


def test_a_running_program_without_a_loop_has_a_timed_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from sawtooth.ingest.capture.attach import inside

    for constant, seconds in {"MIN_WAIT_S": 0.05, "POLL_PERIOD_S": 0.01, "PROFILE_S": 0.1, "MIN_PROFILE_S": 0.05}.items():
        monkeypatch.setattr(timed_profile, constant, seconds)
    (tmp_path / inside.LEASE_FILE).touch()
    attached = inside.Attachment(HookSettings(tmp_path, 5, 0.0, None, 1, 1))
    attached.begin(importlib.import_module("torch.optim.optimizer"), time_loader=False)
    limit = time.monotonic() + 60
    try:
        while not list(tmp_path.glob(f"{timed_profile.KIND}-*.json")):
            torch.ones(100, 100) @ torch.ones(100, 100)
            assert time.monotonic() < limit
    finally:
        attached.remove()
    (run,) = runs_to_pack(tmp_path)
    assert [about["kind"] for _, about in run.sources] == ["trace"]
    (sentence,) = attaching._missing_from_hook([run], AttachOptions())
    assert sentence.startswith(attaching.NO_STEP) and sentence.endswith(attaching.PROFILED)


def test_a_running_profiler_of_the_training_is_detected(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from sawtooth.ingest.capture.attach import inside

    @contextlib.contextmanager
    def attached() -> Iterator[None]:
        attachment = inside.Attachment(HookSettings(tmp_path, 0, 1.0, None, 1, 1))
        attachment.begin(importlib.import_module("torch.optim.optimizer"), time_loader=False)
        try:
            yield
        finally:
            attachment.remove()

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), attached():
        assert inside.PROFILERS.busy
    with attached():  # The profiler ended while no hook watched it.
        assert not inside.PROFILERS.busy


def test_hooks_of_an_optimizer_are_not_changed_during_iteration() -> None:
    torch = pytest.importorskip("torch")
    from sawtooth.ingest.capture.attach.inside import answer_request

    answers: list[dict[str, Any]] = []
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.LBFGS([parameter])

    def closure() -> Any:
        answers.append(answer_request({"do": "detach"}))  # Within the step, where no hook runs.
        return (parameter * parameter).sum()

    handle = optimizer.register_step_post_hook(lambda *_: answers.append(answer_request({"do": "detach"})))
    optimizer.step(closure)
    handle.remove()
    assert "stays" in answers[0] and answers[-1] == {"again": True}


def test_attach_observes_the_same_events_as_run() -> None:
    from sawtooth.ingest.capture.attach.inside import LOADER_PATCHES, OPTIMIZER_MODULE, PATCHES

    startup = Path(hook.__file__).with_name("startup") / "sitecustomize.py"
    awaited = next(part for part in startup.read_text().split("\n}") if "PATCHES = {" in part).partition("PATCHES = {")[2]
    modules = {line.split('"')[1] for line in awaited.splitlines() if '":' in line}
    assert {"torch.serialization" if name == "torch" else name for name in [*PATCHES, *LOADER_PATCHES]} | {
        OPTIMIZER_MODULE
    } == modules
