"""Training scripts of the ninth set on world models, curves and object tracking."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.sets.ninth.script import Progress, Script, autocast, workload
from sawtooth.sample_traces.workload import DEVICE, Workload


def world(batch: int, checked: bool, length: int = 24, width: int = 256, chances: int = 32) -> Workload:
    """Return the training of a world model, which predicts the next view from states drawn step by step.

    Anomaly detection may be left on.
    """
    cell, into = nn.GRUCell(width, width), nn.Linear(chances + 6, width)
    before, after = nn.Linear(width, 2 * chances), nn.Linear(width + 64, 2 * chances)
    seen, told = nn.Linear(128, 64), nn.Sequential(nn.Linear(width + chances, 256), nn.ELU(), nn.Linear(256, 128))
    net = nn.ModuleList((cell, into, before, after, seen, told)).to(DEVICE)

    def rollout(views: Tensor, acts: Tensor) -> Tensor:
        state, drawn = torch.zeros(batch, width, device=DEVICE), torch.zeros(batch, chances, device=DEVICE)
        loss, eyes = torch.zeros((), device=DEVICE), F.elu(seen(views))
        for t in range(length):
            state = cell(F.elu(into(torch.cat((drawn, acts[t]), -1))), state)
            prior = torch.distributions.Normal(*_spread(before(state)), validate_args=False)
            posterior = torch.distributions.Normal(*_spread(after(torch.cat((state, eyes[t]), -1))), validate_args=False)
            drawn = posterior.rsample()
            out = told(torch.cat((state, drawn), -1))
            apart = torch.distributions.kl_divergence(posterior, prior).sum(-1).clamp(min=1.0).mean()
            loss = loss + F.mse_loss(out, views[t]) + 0.1 * apart
        return loss / length

    def script() -> Script:
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
        autocast("tf32")
        bar = Progress()
        views, acts = torch.randn(length, batch, 128, device=DEVICE), torch.randn(length, batch, 6, device=DEVICE)
        torch.autograd.set_detect_anomaly(checked)
        for _ in itertools.count():
            loss = rollout(views, acts)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 100.0)
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch * length, net)


def _spread(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, spread = x.chunk(2, -1)
    return mean, F.softplus(spread) + 0.1


def curves(points: int, features: int = 64) -> Workload:
    """Return a Gaussian process over a network's features; its likelihood uses a Cholesky factor."""
    net = nn.Sequential(nn.Linear(20, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, features)).to(DEVICE)
    scale, noise = (nn.Parameter(torch.tensor(value, device=DEVICE)) for value in (0.0, -2.0))

    def script() -> Script:
        optimizer = torch.optim.Adam([*net.parameters(), scale, noise], lr=1e-3, fused=True)
        autocast("fp32")
        bar = Progress()
        x, y = torch.randn(points, 20, device=DEVICE), torch.randn(points, 1, device=DEVICE)
        eye = torch.eye(points, device=DEVICE)
        for _ in itertools.count():
            z = net(x)
            norms = z.square().sum(1)
            apart = (norms[:, None] + norms[None] - 2 * z @ z.T).clamp(min=0)
            factor = torch.linalg.cholesky_ex(scale.exp() * torch.exp(-apart / features) + (noise.exp() + 0.05) * eye)[0]
            whitened = torch.linalg.solve_triangular(factor, y, upper=False)
            loss = 0.5 * whitened.square().sum() / points + factor.diagonal().log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), points, net)


def tracker(batch: int, small: int = 127, large: int = 255) -> Workload:
    """Return object tracking: a template is compared with every place of the next picture."""
    parts: list[nn.Module] = []
    for a, b, stride in ((3, 96, 2), (96, 192, 2), (192, 256, 2), (256, 256, 1)):
        parts += [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        parts += [nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    body, score = nn.Sequential(*parts), nn.Sequential(nn.Conv2d(256, 256, 1), nn.ReLU(), nn.Conv2d(256, 5, 1))
    net = nn.ModuleList((body, score)).to(device=DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs

    def script() -> Script:
        optimizer = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.9, fused=True)
        context, bar = autocast("bf16"), Progress()
        first, later = (
            torch.randn(batch, 3, side, side, device=DEVICE).contiguous(memory_format=torch.channels_last)
            for side in (small, large)
        )
        for _ in itertools.count():
            with context():
                template, place = body(first), body(later)
                kernel = template.mean((2, 3))[..., None, None]
                out = score(place * kernel).float()
                there = torch.zeros_like(out[:, 0])
                loss = F.binary_cross_entropy_with_logits(out[:, 0], there) + F.smooth_l1_loss(
                    out[:, 1:].exp(), torch.ones_like(out[:, 1:])
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)
