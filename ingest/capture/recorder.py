"""Recording of a training loop from inside, into one ``.sawtooth`` file.

    from sawtooth.capture import profile

    with profile("baseline.sawtooth", samples=64, parameters=model) as capture:
        for batch in loader:
            train_step(batch)
            capture.step()

After ``skip`` steps, the undisturbed loop is timed for ``seconds`` (and at least MIN_TIMED steps), while the sampler records the GPU in its
own process. Then torch.profiler records ``active`` steps, and some more steps are timed. Then the file is written, and the loop goes on
undisturbed. Messages on stderr report each phase. Set ``steps`` to the loop's length to fit all phases into a short loop.

Until the file is written, its parts are in a folder beside it (``baseline-recording-…``). The folder remains if the job is killed, and
`sawtooth ingest` reads it. Drop the file on the dashboard, or import it with `sawtooth ingest`.

With Lightning or Hugging Face's Trainer, the callbacks of ``sawtooth.capture`` call ``step`` for you. The recorder needs only PyTorch and,
for telemetry, nvidia-ml-py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.loop_capture import Capture
from sawtooth.ingest.capture.plan import Plan
from sawtooth.ingest.capture.process_rank import environment_number


def profile(
    path: str | Path,
    *,
    name: str = "",
    samples: float | None = None,
    tokens: float | None = None,
    parameters: Any = None,
    flops: float | None = None,
    settings: dict[str, Any] | None = None,
    notes: str = "",
    tags: tuple[str, ...] = (),
    steps: int | None = None,
    skip: int = 10,
    seconds: float = 10.0,
    warmup: int = 3,
    active: int = 5,
    sampler: bool = True,
    time_batches: bool = True,
    **options: Any,
) -> Capture:
    """Return a context manager that captures the loop inside it; call its ``step()`` after each step.

    ``samples``, ``tokens`` and ``flops`` are numbers per step. ``parameters`` is the model or its number of parameters. ``settings`` are
    the values that differ between runs, such as the batch size. ``steps`` is the loop's number of steps, if known.

    ``options`` go to torch.profiler.profile, such as ``with_stack=True`` or ``profile_memory=True``. Each of them slows the profiled
    steps. With ``time_batches``, loader workers that are forked inside the context time their batches. With several ranks, each rank
    writes its own file (``-rank3`` before the suffix), and one rank per host starts the sampler.
    """
    target = Path(path)
    if target.suffix != ".sawtooth":
        target = target.with_name(target.name + ".sawtooth")
    rank = environment_number("RANK")
    if rank is not None and (environment_number("WORLD_SIZE") or 1) > 1:
        target = target.with_name(f"{target.stem}-rank{rank}{target.suffix}")
        sampler = sampler and os.environ.get("LOCAL_RANK", "0") == "0"
    facts = {
        "samples_per_step": samples,
        "tokens_per_step": tokens,
        "parameters": _count_parameters(parameters),
        "flops_per_step": flops,
    }
    run = {
        "name": name,
        "notes": notes,
        "tags": tags,
        "settings": {str(k): str(v) for k, v in (settings or {}).items()},
        "facts": {k: float(v) for k, v in facts.items() if v},  # A value of 0 means unknown.
    }
    plan = Plan(skip, seconds, warmup, active).for_loop(steps)
    return Capture(target, run, plan=plan, sampler=sampler, options=options, time_batches=time_batches)


def _count_parameters(parameters: Any) -> float | None:
    if parameters is None or isinstance(parameters, int | float):
        return parameters
    tensors = parameters.parameters() if hasattr(parameters, "parameters") else parameters
    return float(sum(tensor.numel() for tensor in tensors))
