"""The models and the training step that the loops of `processes.py` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], object]


def gpt(
    device: str, *, width: int = 768, heads: int = 12, layers: int = 6, vocabulary: int = 50304, length: int = 512
) -> tuple:
    """Return a small transformer of PyTorch's own layers, its loss as a function of tokens, and tokens."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(vocabulary, width)
            layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.embed(tokens)))

    model = Model().to(device)
    tokens = torch.randint(0, vocabulary, (8, length), device=device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())

    return model, loss


def small_layers(device: str, width: int = 128, layers: int = 60) -> tuple:
    """Return a deep model of small layers, whose host is the limit, and its loss."""
    import torch

    model = torch.nn.Sequential(*(part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU()))).to(
        device
    )
    rows = torch.randn(64, width, device=device)
    return model, lambda: model(rows).square().mean()


def trained(model: Any, loss: Callable, **adam: Any) -> Step:
    """Return a training step with AdamW."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **adam)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step
