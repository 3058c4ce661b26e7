"""Training scripts of the ninth set on pictures."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import nn
from torch.utils.data import DataLoader

from sawtooth.sample_traces.sets.ninth import seeing
from sawtooth.sample_traces.sets.ninth.data import Captioned
from sawtooth.sample_traces.sets.ninth.script import Progress, Script, autocast, cosine, workload
from sawtooth.sample_traces.workload import DEVICE, Workload


def radiance(rays: int, precision: str, samples: int = 64, width: int = 512) -> Workload:
    """Return the fit of a radiance field to pixels, from points along each ray."""
    net = seeing.Radiance(width, 6).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, fused=True)
        context, bar = autocast(precision), Progress()
        origins, pixels = torch.randn(200_000, 3, device=DEVICE), torch.rand(200_000, 3, device=DEVICE)
        towards = F.normalize(torch.randn(200_000, 3, device=DEVICE), dim=-1)
        for step in itertools.count():
            cosine(optimizer, step, 5e-4)
            drawn = torch.randint(0, len(pixels), (rays,), device=DEVICE)
            far = torch.linspace(2, 6, samples, device=DEVICE) + torch.rand(rays, samples, device=DEVICE) * (4 / samples)
            points = origins[drawn][:, None] + far[..., None] * towards[drawn][:, None]
            seen = towards[drawn][:, None].expand_as(points)
            with context():
                colour, density = net(points.reshape(-1, 3), seen.reshape(-1, 3))
            opaque = 1 - torch.exp(-density.view(rays, samples) * (4 / samples))
            through = torch.cumprod(1 - opaque + 1e-10, 1).roll(1, 1)
            shares = opaque * torch.cat((torch.ones_like(through[:, :1]), through[:, 1:]), 1)
            loss = F.mse_loss((shares[..., None] * colour.view(rays, samples, 3)).sum(1), pixels[drawn])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), rays, net)


def coded(batch: int, channels_last: bool, side: int = 256, width: int = 256) -> Workload:
    """Return the training of a vector-quantized autoencoder in bf16."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    net: nn.Module = seeing.Quantized(width).to(device=DEVICE, memory_format=layout)  # type: ignore[call-overload]  # missing in the stubs

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.99), fused=True)
        context, bar = autocast("bf16"), Progress()
        pictures = [torch.randn(batch, 3, side, side, device=DEVICE).to(memory_format=layout) for _ in range(2)]
        for step in itertools.count():
            cosine(optimizer, step, 3e-4)
            x = pictures[step % 2]
            with context():
                out, cost = net(x)
                loss = F.mse_loss(out, x) + cost
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def perceiver(batch: int, fused: bool, pixels: int = 4096, latents: int = 512) -> Workload:
    """Return picture classification by latents that attend to all pixels."""
    net = seeing.ImagePerceiver(fused, latents, 512, 256).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
        context, bar = autocast("bf16"), Progress()
        seen = [torch.randn(batch, pixels, 256, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
        kinds = torch.randint(0, 100, (batch,), device=DEVICE)
        for step in itertools.count():
            cosine(optimizer, step, 1e-4)
            with context():
                loss = F.cross_entropy(net(seen[step % 2]), kinds, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def land(batch: int, pinned: bool, confusion_on_host: bool, bands: int = 12, side: int = 512, kinds: int = 9) -> Workload:
    """Return the prediction of land cover from twelve bands.

    Each step counts how often each class is mistaken for another.
    """
    net = seeing.Land(bands, 256, kinds).to(device=DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs

    def script() -> Script:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, fused=True)
        context, bar = autocast("bf16"), Progress()
        tiles = [(torch.randn(batch, bands, side, side), torch.randint(0, kinds, (batch, side, side))) for _ in range(2)]
        if pinned:
            tiles = [(x.pin_memory(), y.pin_memory()) for x, y in tiles]
        counts, on_gpu = np.zeros((kinds, kinds), np.int64), torch.zeros(kinds * kinds, device=DEVICE)
        for step in itertools.count():
            x, y = (part.to(DEVICE, non_blocking=True) for part in tiles[step % 2])
            with context():
                out = net(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            taken = out.argmax(1)
            if confusion_on_host:
                pairs = kinds * y.cpu().numpy().ravel() + taken.cpu().numpy().ravel()
                counts += np.bincount(pairs, minlength=kinds * kinds).reshape(kinds, kinds)
            else:
                on_gpu += torch.histc((kinds * y + taken).float(), kinds * kinds, 0, kinds * kinds - 1)
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def captioned(batch: int, workers: int) -> Workload:
    """Return contrastive training of pictures and captions, which are both prepared when they are read."""
    sight = nn.Sequential(
        nn.Conv2d(3, 256, 16, 16), nn.Flatten(2), nn.Linear(64, 64), nn.GELU(), nn.Flatten(), nn.Linear(16384, 512)
    )
    words, text = nn.Embedding(20_000, 512), nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    net = nn.ModuleList((sight, words, text)).to(DEVICE)
    heat = nn.Parameter(torch.tensor(2.6, device=DEVICE))

    def script() -> Script:
        loader = DataLoader(
            Captioned(batch * 100_000),
            batch,
            shuffle=True,
            num_workers=workers,
            pin_memory=True,
            drop_last=True,
            persistent_workers=workers > 0,
        )
        optimizer = torch.optim.AdamW([*net.parameters(), heat], lr=5e-4, fused=True)
        context, bar = autocast("bf16"), Progress()
        same = torch.arange(batch, device=DEVICE)
        for pictures, captions in loader:
            x, said = pictures.to(DEVICE, non_blocking=True), captions.to(DEVICE, non_blocking=True)
            with context():
                a = F.normalize(sight(x).float(), dim=-1)
                b = F.normalize(text(words(said).mean(1)).float(), dim=-1)
            alike = heat.exp() * a @ b.T
            loss = (F.cross_entropy(alike, same) + F.cross_entropy(alike.T, same)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def slots(batch: int, collects: bool, side: int = 128) -> Workload:
    """Return slot attention on pictures, with a garbage collection in every step.

    Users add such a call after they run out of memory once.
    """
    net = seeing.Slots(7, 64).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.Adam(net.parameters(), lr=4e-4, fused=True)
        context, bar = autocast("tf32"), Progress()
        pictures = torch.rand(batch, 3, side, side, device=DEVICE)
        for step in itertools.count():
            cosine(optimizer, step, 4e-4)
            with context():
                loss = F.mse_loss(net(pictures), pictures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if collects:
                gc.collect()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)
