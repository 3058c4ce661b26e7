"""Loops of the eighth set that do not use the engine.

They have two optimizers, a captured step, or a policy that learns from its own actions.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.sets.eighth import large, others
from sawtooth.sample_traces.sets.second.workloads import precision_context
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params, make_adam


def motion(batch: int, graph: bool, width: int = 32, inner: int = 128, times: int = 10) -> Workload:
    """Return a neural differential equation with ten Runge-Kutta steps."""
    precision_context("tf32")
    net = others.Change(width, inner).to(DEVICE)
    adam = make_adam(net, "fused", capturable=True)
    begin, end = (torch.randn(batch, width, device=DEVICE) for _ in range(2))

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        moved = net.integrate(begin, times)
        loss = F.mse_loss(moved, end) + 1e-3 * moved.square().mean()
        loss.backward()
        adam.step()

    return Workload(as_graph(step) if graph else step, count_params(net), batch, step)


def gains(environments: int, in_loop: bool, horizon: int = 128, rounds: int = 4) -> Workload:
    """Return proximal policy optimization: advantages once, then four rounds of updates."""
    context = precision_context("tf32")
    body = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
    policy, value = nn.Linear(512, 12), nn.Linear(512, 1)
    net = nn.ModuleList((body, policy, value)).to(DEVICE)
    adam = make_adam(net, "fused")
    seen = torch.randn(horizon + 1, environments, 64, device=DEVICE)
    acts = torch.randint(0, 12, (horizon, environments), device=DEVICE)
    rewards, alive = torch.rand(horizon, environments, device=DEVICE), torch.ones(horizon, environments, device=DEVICE)
    ahead = torch.arange(horizon, device=DEVICE)[None] - torch.arange(horizon, device=DEVICE)[:, None]
    discounts = torch.where(ahead >= 0, 0.9405 ** ahead.clamp(min=0), torch.zeros((), device=DEVICE))

    def added_up(worth: Tensor) -> Tensor:
        surprise = rewards + 0.99 * worth[1:] * alive - worth[:-1]
        if not in_loop:
            return discounts @ surprise
        advantages, last = torch.zeros_like(rewards), torch.zeros(environments, device=DEVICE)
        for t in reversed(range(horizon)):
            last = surprise[t] + 0.99 * 0.95 * alive[t] * last
            advantages[t] = last
        return advantages

    def step() -> None:
        with torch.no_grad():
            hidden = body(seen)
            before = F.log_softmax(policy(hidden[:-1]), -1).gather(-1, acts[..., None])[..., 0]
            worth = value(hidden)[..., 0]
            advantages = added_up(worth)
            returns = advantages + worth[:-1]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for rows in torch.randperm(horizon, device=DEVICE).chunk(rounds):
            with context():
                hidden = body(seen[rows])
                chances = F.log_softmax(policy(hidden), -1)
                ratio = (chances.gather(-1, acts[rows][..., None])[..., 0] - before[rows]).exp()
                gain = torch.min(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows]).mean()
                error = F.mse_loss(value(hidden)[..., 0], returns[rows])
                loss = 0.5 * error - gain + 0.01 * (chances.exp() * chances).sum(-1).mean()
            adam.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()

    return Workload(step, count_params(net), environments * horizon)


def voices(batch: int, precision: str, frames: int = 32) -> Workload:
    """Return the training of a vocoder and its discriminators in turns.

    The vocoder also has losses on the discriminators' features and on the spectrum.
    """
    context = precision_context(precision)
    maker, judges = large.Vocoder().to(DEVICE), large.Periods().to(DEVICE)
    adams = [torch.optim.AdamW(net.parameters(), 2e-4, (0.8, 0.99), fused=True) for net in (maker, judges)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(adam, 0.9999) for adam in adams]
    pairs = itertools.cycle(
        [(torch.randn(batch, 80, frames, device=DEVICE), torch.randn(batch, 1, frames * 256, device=DEVICE)) for _ in range(2)]
    )
    window = torch.hann_window(1024, device=DEVICE)

    def spectrum(wave: Tensor) -> Tensor:
        return torch.stft(wave[:, 0], 1024, 256, window=window, return_complex=True).abs().clamp(min=1e-5).log()

    def step() -> None:
        mel, real = next(pairs)
        with context():
            fake = maker(mel)
            told, foretold = judges(real)[0], judges(fake.detach())[0]
            harsh = sum(
                ((1 - a).square().mean() + b.square().mean() for a, b in zip(told, foretold, strict=True)), real.new_zeros(())
            )
        adams[1].zero_grad(set_to_none=True)
        harsh.backward()
        adams[1].step()
        with context():
            with torch.no_grad():
                wanted = judges(real)[1]
            verdicts, seen = judges(fake)
            loss = sum(((1 - v).square().mean() for v in verdicts), real.new_zeros(()))
            loss = loss + 2 * sum((F.l1_loss(a, b) for a, b in zip(seen, wanted, strict=True)), real.new_zeros(()))
            loss = loss + 45 * F.l1_loss(spectrum(fake), spectrum(real))
        adams[0].zero_grad(set_to_none=True)
        loss.backward()
        adams[0].step()
        for schedule in schedules:
            schedule.step()

    return Workload(step, count_params(maker) + count_params(judges), batch)
