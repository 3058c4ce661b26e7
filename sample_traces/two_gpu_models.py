"""The models that jobs of two ranks train: how each is built, what a batch of it is, and how FSDP shards it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from sawtooth.sample_traces.sets.first.models import Gpt, GptShape, ResNet
from sawtooth.sample_traces.sets.second.models import T5, Llama, Mixer, ViT, convnext
from sawtooth.sample_traces.sets.second.more_models import MaskedLanguage
from sawtooth.sample_traces.sets.sixth.models import DiffusionTransformer, LinearDecoder, dense_net
from sawtooth.sample_traces.sets.third.models import Conformer

CLASSES = 1000
SIDE = 64  # of a latent image
SOUNDS = 128  # that a frame may be


class Classifier(nn.Module):
    """The loss of a network that classifies images."""

    def __init__(self, network: nn.Module, blocks: Iterable[nn.Module] = ()) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.blocks = blocks

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """`images`: (batch, 3, 224, 224), `labels`: (batch,) int64; returns a scalar."""
        return nn.functional.cross_entropy(self.network(images), labels)


class Denoiser(nn.Module):
    """The loss of a diffusion transformer that tells the noise in latent images."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = DiffusionTransformer(SIDE, 4, shape.width, shape.layers, shape.heads)

    @property
    def blocks(self) -> nn.ModuleList:
        """Its layers."""
        return self.network.blocks

    def forward(self, latent: Tensor, time: Tensor, kinds: Tensor) -> Tensor:
        """`latent`: (batch, 4, 64, 64), `time`: (batch,) of 0 to 1, `kinds`: (batch,) int64; returns a scalar."""
        noise, level = torch.randn_like(latent), (1 - time)[:, None, None, None]
        told = self.network(level * latent + (1 - level) * noise, 1000 * time, kinds)
        return nn.functional.mse_loss(told.float(), noise)


class Listener(nn.Module):
    """The loss of a Conformer that tells the sound of each frame."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = Conformer(shape.width, shape.layers)

    def forward(self, frames: Tensor, sounds: Tensor) -> Tensor:
        """`frames`: (batch, length, 80), `sounds`: (batch, length) int64; returns a scalar."""
        return nn.functional.cross_entropy(self.network(frames).flatten(0, 1), sounds.flatten())


@dataclass(frozen=True)
class Model:
    """A kind of model: it gives the loss of a batch, and has its layers as `blocks` where FSDP may shard it."""

    build: Callable[[GptShape], nn.Module]
    batch: Callable[[GptShape, int], tuple[Tensor, ...]]  # on the host


def _next_tokens(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    tokens = torch.randint(0, shape.vocab, (many, shape.seq + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _tokens(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, shape.vocab, (many, shape.seq + 1)),)


def _words(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, shape.vocab, (many, shape.seq)),)


def _two_texts(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(0, shape.vocab, (many, shape.seq)) for _ in range(2))


def _images(_: GptShape, many: int) -> tuple[Tensor, ...]:
    images = torch.randn(many, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(0, CLASSES, (many,))


def _latents(_: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, 4, SIDE, SIDE), torch.rand(many), torch.randint(0, CLASSES, (many,))


def _frames(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, shape.seq, 80), torch.randint(0, SOUNDS, (many, shape.seq))


def _vit(shape: GptShape) -> nn.Module:
    network = ViT(shape.width, shape.layers, shape.heads)
    return Classifier(network, network.blocks.layers)


MODELS = {
    "gpt": Model(Gpt, _next_tokens),
    "llama": Model(lambda s: Llama(s.width, s.layers, s.heads, 4, s.vocab), _tokens),
    "bert": Model(lambda s: MaskedLanguage(s.vocab, s.width, s.layers), _two_texts),
    "t5": Model(lambda s: T5(s.width, s.layers, s.heads, s.vocab, s.seq), _two_texts),
    "resnet": Model(lambda _: Classifier(ResNet()), _images),
    "convnext": Model(lambda s: Classifier(convnext((s.width, 2 * s.width, 4 * s.width), s.layers)), _images),
    "vit": Model(_vit, _images),
    "mixer": Model(lambda s: Classifier(Mixer(s.width, s.layers)), _images),
    "dense": Model(lambda _: Classifier(dense_net()), _images),
    "linear": Model(lambda s: LinearDecoder(s.vocab, s.width, s.layers), _words),
    "dit": Model(Denoiser, _latents),
    "conformer": Model(Listener, _frames),
}


def sharded(model: nn.Module, *, reshard: bool, older: bool, prefetch: bool) -> nn.Module:
    """Shard `model` by its blocks: by `fully_shard`, or by the older wrapper, which may be told not to gather ahead."""
    blocks: Any = model.blocks
    layers = list(getattr(blocks, "layers", blocks))
    if older:
        ahead = BackwardPrefetch.BACKWARD_PRE if prefetch else None
        policy = ModuleWrapPolicy({type(layers[0])})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=torch.cuda.current_device(), backward_prefetch=ahead, forward_prefetch=prefetch,
            use_orig_params=True,
        )  # fmt: skip
    for layer in layers:
        fully_shard(layer, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    return model
