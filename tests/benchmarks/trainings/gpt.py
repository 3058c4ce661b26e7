"""Train a small GPT in float32 with planted faults.

It uses neither TF32 nor bf16, and calls .item() in each step. With --one-by-one, the optimizer updates tensor by tensor.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

WIDTH, LAYERS, HEADS, LENGTH, BATCH, WORDS = 768, 12, 12, 512, 8, 8192


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for (batch, length, width)."""
        n, t, _ = x.shape
        q, k, v = self.qkv(self.a(x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, WIDTH)
        x = x + self.out(mixed)
        return x + self.mlp(self.b(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.end = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits: Tensor = self.end(self.blocks(self.words(tokens) + places))
        return logits


def main() -> None:
    torch.manual_seed(0)
    model = GPT().to("cuda")
    foreach = False if "--one-by-one" in sys.argv else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=foreach)
    data = torch.randint(0, WORDS, (256, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    for step in range(100_000):
        at = (step * BATCH) % (len(data) - BATCH)
        tokens = data[at : at + BATCH].to("cuda")
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if step % 100 == 0:
            print(step, value, flush=True)
        if step % 500 == 499:
            torch.save(model.state_dict(), "gpt.pt")


if __name__ == "__main__":
    main()
