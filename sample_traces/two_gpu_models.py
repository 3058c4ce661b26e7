"""The models that jobs of two ranks train: how to build each, its batches, and how FSDP shards it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from sawtooth.sample_traces.sets.eighth.large import Coder
from sawtooth.sample_traces.sets.eighth.vision import Pyramid, ReducedAttention
from sawtooth.sample_traces.sets.first.models import Block, Gpt, GptShape, ResNet
from sawtooth.sample_traces.sets.second.models import T5, Llama, Mixer, UNet, ViT, convnext
from sawtooth.sample_traces.sets.second.more_models import Dlrm, MaskedLanguage
from sawtooth.sample_traces.sets.sixth.models import DiffusionTransformer, LinearDecoder, dense_net
from sawtooth.sample_traces.sets.third.models import Conformer

CLASSES = 1000
SIDE = 64  # Side of a latent image.
SOUNDS = 128  # Number of sounds that a frame may contain.


class Classifier(nn.Module):
    """The loss of a network that classifies images."""

    def __init__(self, network: nn.Module, blocks: Iterable[nn.Module] = ()) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.blocks = blocks

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar loss; `images`: (batch, 3, 224, 224), `labels`: (batch,) int64."""
        return nn.functional.cross_entropy(self.network(images), labels)


class Denoiser(nn.Module):
    """The loss of a diffusion transformer that predicts the noise in latent images."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = DiffusionTransformer(SIDE, 4, shape.width, shape.layers, shape.heads)

    @property
    def blocks(self) -> nn.ModuleList:
        """Layers of the model."""
        return self.network.blocks

    def forward(self, latent: Tensor, time: Tensor, kinds: Tensor) -> Tensor:
        """Return the scalar loss.

        `latent`: (batch, 4, 64, 64), `time`: (batch,) from 0 to 1, `kinds`: (batch,) int64.
        """
        noise, level = torch.randn_like(latent), (1 - time)[:, None, None, None]
        predicted = self.network(level * latent + (1 - level) * noise, 1000 * time, kinds)
        return nn.functional.mse_loss(predicted.float(), noise)


class Listener(nn.Module):
    """The loss of a Conformer that predicts the sound of each frame."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = Conformer(shape.width, shape.layers)

    def forward(self, frames: Tensor, sounds: Tensor) -> Tensor:
        """Return the scalar loss; `frames`: (batch, length, 80), `sounds`: (batch, length) int64."""
        return nn.functional.cross_entropy(self.network(frames).flatten(0, 1), sounds.flatten())


class Programs(nn.Module):
    """The loss of the next token of a program."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = Coder(shape.vocab, shape.width, shape.layers, shape.seq)
        self.blocks = self.network.blocks

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        """Return the scalar loss; both inputs are (batch, length) int64."""
        return nn.functional.cross_entropy(self.network(words).flatten(0, 1), following.flatten())


class Transcriber(nn.Module):
    """The loss of the text in a sound-to-text model with an encoder and a decoder."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        width = shape.width
        self.front = nn.Sequential(nn.Conv1d(80, width, 3, padding=1), nn.GELU(), nn.Conv1d(width, width, 3, 2, 1), nn.GELU())
        options: dict[str, Any] = {"batch_first": True, "norm_first": True}
        encode = [nn.TransformerEncoderLayer(width, shape.heads, 4 * width, 0.0, **options) for _ in range(shape.layers)]
        decode = [nn.TransformerDecoderLayer(width, shape.heads, 4 * width, 0.0, **options) for _ in range(shape.layers)]
        self.blocks = nn.ModuleList([*encode, *decode])
        self.words, self.head = nn.Embedding(shape.vocab, width), nn.Linear(width, shape.vocab, bias=False)

    def forward(self, sound: Tensor, words: Tensor, following: Tensor) -> Tensor:
        """Return the scalar loss; `sound`: (batch, 80, frames), texts: (batch, length) int64."""
        sound_features, text = self.front(sound).transpose(1, 2), self.words(words)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        for block in self.blocks:
            if isinstance(block, nn.TransformerEncoderLayer):
                sound_features = block(sound_features)
            else:
                text = block(text, sound_features, tgt_mask=mask, tgt_is_causal=True)
        return nn.functional.cross_entropy(self.head(text).flatten(0, 1), following.flatten())


class Pixels(nn.Module):
    """The loss of a network that predicts a class for each pixel."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, kinds: Tensor) -> Tensor:
        """Return the scalar loss; `images`: (batch, 3, side, side), `kinds`: (batch, h, w) int64."""
        return nn.functional.cross_entropy(self.network(images).float(), kinds)


class Clicked(nn.Module):
    """The loss of a recommender that predicts whether a user clicks an offer."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.network = Dlrm(rows=shape.vocab, width=shape.width)

    def forward(self, dense: Tensor, sparse: Tensor, clicked: Tensor) -> Tensor:
        """Return the scalar loss.

        `dense`: (batch, 13), `sparse`: (batch, 26) int64, `clicked`: (batch,).
        """
        return nn.functional.binary_cross_entropy_with_logits(self.network(dense, sparse.t()).float(), clicked)


class Routed(nn.Module):
    """The loss of transformer blocks that are each followed by one of eight MLPs.

    The batch's first token chooses the MLP, so most of them get no gradient.
    """

    def __init__(self, shape: GptShape, experts: int = 8) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(shape.vocab, shape.width), nn.Linear(shape.width, shape.vocab, bias=False)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        wide = 2 * shape.width
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(shape.width, wide), nn.GELU(), nn.Linear(wide, shape.width)) for _ in range(experts)
            )
            for _ in range(shape.layers)
        )

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        """Return the scalar loss; both inputs are (batch, length) int64."""
        x, first = self.words(words), int(words[0, 0])
        for index, (block, experts) in enumerate(zip(self.blocks, self.experts, strict=True)):
            choices: Any = experts
            x = block(x, None)
            x = x + choices[(first + index) % len(choices)](x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), following.flatten())


class LibraryModel(nn.Module):
    """The loss of a language model of the library `transformers`, with random weights."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=shape.vocab, hidden_size=shape.width, intermediate_size=4 * shape.width, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, num_key_value_heads=2, head_dim=64, max_position_embeddings=shape.seq, use_cache=False,
        )  # fmt: skip
        self.network = LlamaForCausalLM(config)
        self.blocks = self.network.model.layers

    def forward(self, words: Tensor) -> Tensor:
        """Return the scalar loss; `words` are (batch, length) int64."""
        loss: Tensor = self.network(input_ids=words, labels=words).loss
        return loss


@dataclass(frozen=True)
class Model:
    """A kind of model, which returns the loss of a batch.

    It has its layers in `blocks` if FSDP may shard it.
    """

    build: Callable[[GptShape], nn.Module]
    batch: Callable[[GptShape, int], tuple[Tensor, ...]]  # The batch is on the host.


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


def _speech(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, 80, 1500), *_next_tokens(shape, many)


def _scenes(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, 3, shape.seq, shape.seq), torch.randint(0, 8, (many, shape.seq, shape.seq))


def _coarse_scenes(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, 3, shape.seq, shape.seq), torch.randint(0, 8, (many, shape.seq // 4, shape.seq // 4))


def _offers(shape: GptShape, many: int) -> tuple[Tensor, ...]:
    return torch.randn(many, 13), torch.randint(0, shape.vocab, (many, 26)), torch.rand(many).round()


def _pyramid(shape: GptShape) -> nn.Module:
    network = Pyramid(fused=True, depth=shape.layers, classes=8)
    for part in network.modules():
        if isinstance(part, ReducedAttention) and part.reduce is None:
            part.norm = nn.Identity()  # type: ignore[assignment]  # not used there: DDP would wait for its gradients
    return Pixels(network)


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
    "coder": Model(Programs, _next_tokens),
    "whisper": Model(Transcriber, _speech),
    "unet": Model(lambda s: Pixels(UNet(width=s.width)), _scenes),
    "pyramid": Model(_pyramid, _coarse_scenes),
    "clicks": Model(Clicked, _offers),
    "experts": Model(Routed, _next_tokens),
    "library": Model(LibraryModel, _words),
}


def sharded(model: nn.Module, *, reshard: bool, older: bool, prefetch: bool) -> nn.Module:
    """Shard `model` by its blocks, with `fully_shard` or with the older wrapper.

    `prefetch` is for the older wrapper only: it gathers weights ahead.
    """
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
