"""Small training loops that the GPU limits, each as it is or with one change.

`processes.py` records them. The function of a loop takes the device and whether the loop is changed. It returns a function that runs one step. Its docstring
names the change.
"""

from __future__ import annotations

from typing import Any

from sawtooth.sample_traces.process_models import Step, gpt, trained


def precision(device: str, changed: bool) -> Step:
    """FP32 → bf16 autocast."""
    import torch

    model, loss = gpt(device)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=changed):
            return loss()

    return trained(model, cast, fused=True)


def tf32(device: str, changed: bool) -> Step:
    """FP32 products → TF32."""
    import torch

    torch.set_float32_matmul_precision("high" if changed else "highest")
    return trained(*gpt(device, layers=4), fused=True)


def head(device: str, changed: bool) -> Step:
    """A vocabulary of 50257 → 50304."""
    import torch

    model, loss = gpt(device, vocabulary=50304 if changed else 50257)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return loss()

    return trained(model, cast, fused=True)


def layout(device: str, changed: bool) -> Step:
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

    return trained(model, loss, fused=True)


def attention(device: str, changed: bool) -> Step:
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

    return trained(project, loss, fused=True)


def recomputation(device: str, changed: bool) -> Step:
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

    return trained(blocks, loss, fused=True)


GPU_LOOPS = {loop.__name__: loop for loop in (precision, tf32, head, layout, attention, recomputation)}
