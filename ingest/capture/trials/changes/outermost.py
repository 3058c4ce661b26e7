"""Changes of the outermost modules: torch.compile, channels-last weights, bf16 autocast.

A module is outermost if the training's own code calls it with gradients during the first step. ``Module.__call__`` is patched until the end
of this step. The proof of a change is Dynamo's counter of graphs, a recorded CUDA graph, the layout of the weights, or the type of a product
inside forward. A compiled module is not compiled again, and a module without convolutions keeps its layout. Standard library only.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..trial_state import TrialState

COMPILE, GRAPHS, LAYOUT, AUTOCAST = "compile", "compile-cuda-graphs", "channels-last", "bf16-autocast"
NO_CONVOLUTION = "The model has no two-dimensional convolution."
PROVEN_AFTER = 3  # The layout is proven after this many steps.
# Modules are compiled after this many steps, without the patch of ``Module.__call__``, which Dynamo would compile with each layer.
COMPILED_AFTER = 1
REPLAYED_AFTER = 6  # CUDA graphs are proven after this many steps. They are replayed from the third compiled step on.


def _patch(module: ModuleType, state: TrialState) -> None:
    """Patch ``Module.__call__`` until the end of the first step; ``module`` is torch.nn.modules.module."""
    owner = module.Module
    original = owner.__call__
    changed: list[Any] = []
    depth = 0

    def call(model: Any, /, *arguments: Any, **named: Any) -> Any:
        nonlocal depth
        trains = model.training and sys.modules["torch"].is_grad_enabled()
        if depth == 0 and trains and not any(model is other for other in changed):
            changed.append(model)
            state.call_safely(_change, model, state)
        depth += 1
        try:
            return original(model, *arguments, **named)
        finally:
            depth -= 1

    def restore() -> None:
        if owner.__call__ is call:
            owner.__call__ = original

    owner.__call__ = call
    state.after_step(1, restore)


def _change(model: Any, state: TrialState) -> None:
    torch = sys.modules["torch"]
    first = next(model.parameters(), None)
    compiled = any(part._compiled_call_impl is not None or type(part).__name__ == "OptimizedModule" for part in model.modules())
    state.notes.note_seen(
        "model",
        kind=type(model).__qualname__,
        convolutions=len(_convolutions(model, torch)),
        last=all(_is_channels_last(convolution, torch) for convolution in _convolutions(model, torch)),
        compiled=compiled,
        device=first.device.type if first is not None else None,
        dtype=str(first.dtype) if first is not None else None,
    )
    # The patch of DistributedDataParallel's constructor (parallel.py) has changed the layout already.
    if type(model).__name__ != "DistributedDataParallel":
        to_channels_last(model, state)
    if state.requested(AUTOCAST) is not None and first is not None:
        _autocast(model, first.device.type, torch, state)
    for slug, options in ((COMPILE, {}), (GRAPHS, {"mode": "reduce-overhead"})):
        if (values := state.requested(slug)) is None:
            continue
        if compiled:
            state.notes.note_refusal(slug, "The training compiles already.")
            return
        state.after_step(COMPILED_AFTER, functools.partial(_compile, model, **options, **values))
        state.after_step(REPLAYED_AFTER, lambda: _prove_compiled(state))


def _compile(model: Any, **options: Any) -> None:
    """Compile a module in place, as ``torch.compile(model)`` does.

    ``model.compile()`` would compile each part of an ``nn.Sequential`` separately, because Dynamo skips the code of PyTorch's own modules.
    """
    torch = sys.modules["torch"]
    dynamo = importlib.import_module("torch._dynamo")
    call = model._call_impl
    if isinstance(model.forward, MethodType) and dynamo.trace_rules.check(model.forward):
        call = dynamo.external_utils.wrap_inline(call)
    model._compiled_call_impl = torch.compile(call, **options)


def _prove_compiled(state: TrialState) -> None:
    graphs = sys.modules["torch._dynamo.utils"].counters["stats"]["unique_graphs"]
    if graphs:
        state.notes.note_proof(COMPILE, f"Dynamo compiled {graphs} graph{'s' if graphs > 1 else ''}.")
    if state.requested(GRAPHS) is not None:
        trees = sys.modules.get("torch._inductor.cudagraph_trees")
        manager = trees and trees.get_manager(sys.modules["torch"].cuda.current_device(), create_if_none_exists=False)
        if manager is not None and any(manager.roots.values()):
            state.notes.note_proof(GRAPHS, f"torch.compile recorded CUDA graphs of {graphs} compiled functions.")
        else:
            state.notes.note_refusal(GRAPHS, "torch.compile recorded no CUDA graph.")


def to_channels_last(model: Any, state: TrialState) -> None:
    """Change the weights of convolutions to channels-last, if the trial requests it."""
    if state.requested(LAYOUT) is None:
        return
    torch = sys.modules["torch"]
    convolutions = _convolutions(model, torch)
    if not convolutions:
        state.notes.note_refusal(LAYOUT, NO_CONVOLUTION)
        return
    model.to(memory_format=torch.channels_last)

    def prove() -> None:
        if all(_is_channels_last(convolution, torch) for convolution in convolutions):
            state.notes.note_proof(
                LAYOUT, f"The weights of {len(convolutions)} convolutions are channels-last after three steps."
            )

    state.after_step(PROVEN_AFTER, prove)


def _convolutions(model: Any, torch: Any) -> list[Any]:
    return [part for part in model.modules() if isinstance(part, torch.nn.Conv2d)]


def _is_channels_last(convolution: Any, torch: Any) -> bool:
    return bool(convolution.weight.is_contiguous(memory_format=torch.channels_last))


def _autocast(model: Any, device: str, torch: Any, state: TrialState) -> None:
    forward = model.forward

    def in_bf16(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            result = forward(*arguments, **named)
        return _in_fp32(result, torch)

    def first_call(*arguments: Any, **named: Any) -> Any:
        model.forward = in_bf16
        with torch.autocast(device, dtype=torch.bfloat16):
            state.call_safely(prove)
        return in_bf16(*arguments, **named)

    def prove() -> None:
        matrix = torch.ones(1, 1, device=device)
        if (matrix @ matrix).dtype == torch.bfloat16:
            state.notes.note_proof(AUTOCAST, "A product inside forward gives bfloat16.")

    model.forward = first_call


def _in_fp32(result: Any, torch: Any) -> Any:
    """Return a forward's result with bfloat16 tensors as float32, so that the loss stays precise."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype == torch.bfloat16 else result
    if type(result) in (tuple, list):
        return type(result)(_in_fp32(part, torch) for part in result)
    if type(result) is dict:
        return {key: _in_fp32(part, torch) for key, part in result.items()}
    return result


PATCHES = {"torch.nn.modules.module": _patch}
