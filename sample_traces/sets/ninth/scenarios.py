"""Scenarios of the ninth set: complete training scripts, with one common mistake or none."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.ninth.script import Progress, Script, autocast, workload
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third
from sawtooth.sample_traces.workload import DEVICE, Workload

TIMING: dict[str, Any] = {"timed_s": 4.0, "after_s": 0.7, "synced_steps": 4, "first_steps": 4}


def triples(
    batch: int, fused: bool, entities: int = 1_500_000, kinds: int = 400, width: int = 256, false_facts: int = 32
) -> Workload:
    """Return training on facts about a million entities, whose true facts must score above false ones."""
    entity, kind = nn.Embedding(entities, width), nn.Embedding(kinds, width)
    net = nn.ModuleList((entity, kind)).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=fused or None)
        autocast("tf32")
        bar = Progress()
        facts = torch.stack([torch.randint(0, n, (batch * 50,), device=DEVICE) for n in (entities, kinds, entities)])
        for step in itertools.count():
            head, relation, tail = facts[:, (step % 50) * batch : (step % 50 + 1) * batch]
            wrong = torch.randint(0, entities, (batch, false_facts), device=DEVICE)
            meant = entity(head) + kind(relation)
            near = (meant - entity(tail)).abs().sum(-1)
            far = (meant[:, None] - entity(wrong)).abs().sum(-1)
            share = (-far).softmax(-1).detach()
            loss = -(F.logsigmoid(12 - near) + (share * F.logsigmoid(far - 12)).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


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
            squared_distances = (norms[:, None] + norms[None] - 2 * z @ z.T).clamp(min=0)
            factor = torch.linalg.cholesky_ex(
                scale.exp() * torch.exp(-squared_distances / features) + (noise.exp() + 0.05) * eye
            )[0]
            whitened = torch.linalg.solve_triangular(factor, y, upper=False)
            loss = 0.5 * whitened.square().sum() / points + factor.diagonal().log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), points, net)


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING | options.pop("plan", {}), **options)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "triples_foreach": scenario("Adam of a huge table, foreach", triples, 16384, False, fix="triples", change="Adam(fused=True)", rules=("optimizer-foreach",)),
    "triples": scenario(NONE, triples, 16384, True),
    "curves": scenario(NONE + " (healthy; FP32 by need)", curves, 4096),
}
# fmt: on
