"""Training scripts of the ninth set on words, sounds and recommendations."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.sets.ninth import models
from sawtooth.sample_traces.sets.ninth.script import Progress, Script, autocast, cosine, workload
from sawtooth.sample_traces.workload import DEVICE, Workload


def albert(batch: int, fused: bool, words: int = 30_000, length: int = 256, times: int = 6) -> Workload:
    """Return masked-word training of one layer that is applied repeatedly."""
    net = models.Albert(fused, words, 1024, times, length).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        context, bar = autocast("bf16"), Progress()
        for step in itertools.count():
            cosine(optimizer, step, 1e-4)
            text = torch.randint(5, words, (batch, length), device=DEVICE)
            masked = torch.rand(batch, length, device=DEVICE).topk(length // 8).indices
            with context():
                out = net(text.scatter(1, masked, 4)).gather(1, masked[..., None].expand(-1, -1, 128))
                loss = F.cross_entropy((out @ net.words.weight.T).flatten(0, 1).float(), text.gather(1, masked).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def electra(batch: int, recompute: bool, words: int = 30_528, length: int = 512, width: int = 768, layers: int = 6) -> Workload:
    """Return the detection of words that a smaller model replaced; both models are trained."""
    net = models.Electra(words, width, layers, recompute, length).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4, eps=1e-6, weight_decay=0.01, fused=True)
        context, bar = autocast("bf16"), Progress()
        for step in itertools.count():
            cosine(optimizer, step, 2e-4)
            text = torch.randint(5, words, (batch, length), device=DEVICE)
            places = torch.rand(batch, length, device=DEVICE).topk(length // 8).indices
            true = text.gather(1, places)
            with context():
                guess = net.invent(text.scatter(1, places, 4), places)
                chosen = (guess.detach() + torch.empty_like(guess).exponential_().log().neg()).argmax(-1)
                mixed = text.scatter(1, places, chosen)
                verdict = net(mixed)
                loss = F.cross_entropy(guess.flatten(0, 1), true.flatten())
                loss = loss + 50 * F.binary_cross_entropy_with_logits(verdict.float(), (mixed != text).float())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def chat(batch: int, words: int, length: int = 1024, width: int = 1024, layers: int = 4) -> Workload:
    """Return chat training of a retentive network, whose vocabulary has three added tokens."""
    word, head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
    body = nn.Sequential(*(models.Retention(width, 8, length) for _ in range(layers)), nn.LayerNorm(width))
    net = nn.ModuleList((word, body, head)).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-5, fused=True)
        context, bar = autocast("bf16"), Progress()
        text = torch.randint(0, 32_000, (4 * batch, length + 1), device=DEVICE)
        for step in itertools.count():
            cosine(optimizer, step, 2e-5)
            rows = text[(step % 4) * batch : (step % 4 + 1) * batch]
            with context():
                loss = F.cross_entropy(head(body(word(rows[:, :-1]))).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def listener(batch: int, precision: str, frames: int = 2400, width: int = 512, layers: int = 4) -> Workload:
    """Return the training of speech to letters by CTC."""
    net = models.AudioListener(width, layers).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=1e-3, fused=True)
        context, bar = autocast(precision), Progress()
        sounds = [torch.randn(batch, 80, frames, device=DEVICE) for _ in range(2)]
        letters = torch.randint(1, 512, (batch, frames // 32), device=DEVICE)
        frame_counts, letter_counts = (torch.full((batch,), frames // every, device=DEVICE) for every in (4, 32))
        for step in itertools.count():
            cosine(optimizer, step, 1e-3)
            with context():
                out = net(sounds[step % 2])
            loss = F.ctc_loss(out, letters, frame_counts, letter_counts, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def triples(batch: int, fused: bool, things: int = 1_500_000, kinds: int = 400, width: int = 256, others: int = 32) -> Workload:
    """Return training on facts about a million entities, whose true facts must score above false ones."""
    thing, kind = nn.Embedding(things, width), nn.Embedding(kinds, width)
    net = nn.ModuleList((thing, kind)).to(DEVICE)

    def script() -> Script:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=fused or None)
        autocast("tf32")
        bar = Progress()
        facts = torch.stack([torch.randint(0, n, (batch * 50,), device=DEVICE) for n in (things, kinds, things)])
        for step in itertools.count():
            head, how, tail = facts[:, (step % 50) * batch : (step % 50 + 1) * batch]
            wrong = torch.randint(0, things, (batch, others), device=DEVICE)
            meant = thing(head) + kind(how)
            near = (meant - thing(tail)).abs().sum(-1)
            far = (meant[:, None] - thing(wrong)).abs().sum(-1)
            share = (-far).softmax(-1).detach()
            loss = -(F.logsigmoid(12 - near) + (share * F.logsigmoid(far - 12)).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)


def taste(batch: int, on_host: bool, things: int = 50_000, length: int = 100, width: int = 256) -> Workload:
    """Return the prediction of the next item a user takes.

    Items that the user did not take are drawn in each step, except those that the user already knows.
    """
    thing, where = nn.Embedding(things, width), nn.Embedding(length, width)
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True) for _ in range(2)
    )
    net = nn.ModuleList((thing, where, layers)).to(DEVICE)

    def drawn(known: Tensor) -> Tensor:
        wrong = torch.randint(0, things, known.shape, device=known.device)
        known = known.sort(dim=1).values
        at = torch.searchsorted(known, wrong).clamp(max=known.shape[1] - 1)
        return torch.where(known.gather(1, at) == wrong, (wrong + 1) % things, wrong)

    def script() -> Script:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        context, bar = autocast("bf16"), Progress()
        taken = torch.randint(0, things, (batch * 8, length + 1))
        on_gpu = taken.to(DEVICE)
        future = torch.triu(torch.full((length, length), float("-inf"), device=DEVICE), 1)
        for step in itertools.count():
            at = slice((step % 8) * batch, (step % 8 + 1) * batch)
            rows = on_gpu[at]
            wrong = drawn(taken[at, 1:]).to(DEVICE) if on_host else drawn(rows[:, 1:])
            with context():
                x = thing(rows[:, :-1]) + where.weight
                for layer in layers:
                    x = layer(x, src_mask=future, is_causal=True)
                right, false = (x * thing(rows[:, 1:])).sum(-1), (x * thing(wrong)).sum(-1)
            loss = -(F.logsigmoid(right.float()) + F.logsigmoid(-false.float())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(loss)
            yield loss

    return workload(script(), batch, net)
