"""What memory must deliver for one token, from a file's header: weights, and keys and values by layer. Knows no engine.

Names of metadata and layers are llama.cpp's. Left out, so that a ceiling made of these bytes stays one: activations,
what is written, and the constant state of recurrent layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.backends.llama_cpp.gguf import BLOCKS, Header, Tensor
from harness.metrics.roofline import Traffic

# Read one row a token: of the token, of its per-layer embedding, of its position.
_TABLES = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight")
_BLOCK = re.compile(r"blk\.(\d+)\.")
# Tensors of all experts at once, or of one expert (older files).
_EXPERTS = re.compile(r"exps\.|\.ffn_(gate|up|down)\.\d+\.")
# Layers a period where the header gives a window but no pattern, as llama.cpp sets them: all but the last of a period
# have the window, or all but the first. Any other architecture with a window in its header attends to everything.
_PERIODS = {
    "afmoe": 4, "cohere2": 4, "exaone-moe": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2,
    "llama4": 4, "mellum": 4, "olmo2": 4, "plamo3": 8,
}  # fmt: skip
_FULL_FIRST = {"cohere2moe": 4, "laguna": 4, "smallthinker": 4}


def traffic(header: Header, kv: str) -> Traffic:
    """Bytes that one pass reads: ``weight_bytes``, and those of keys and values by window, a token of context."""
    sums: dict[int | None, float] = {}
    for layer in _layers(header, kv):
        sums[layer.window] = sums.get(layer.window, 0.0) + layer.kv_bytes
    groups = tuple((n_bytes, window) for window, n_bytes in sums.items() if n_bytes)
    return Traffic(weight_bytes(header), groups)


def weight_bytes(header: Header) -> float:
    """Bytes of weights read for one generated token.

    Every tensor once, norms and biases too, except: of a table of embeddings one row, unless it is the output matrix
    as well (tied), which is read whole and counted once; of the experts of a mixture the share that is routed to,
    ``expert_used_count / expert_count``; of layers that predict further tokens nothing.
    """
    tied = all(tensor.name != "output.weight" for tensor in header.tensors)
    layers = _layer_count(header)
    total = 0.0
    for tensor in header.tensors:
        block = _BLOCK.match(tensor.name)
        if tensor.name.startswith("nextn.") or (block and int(block[1]) >= layers > 0):
            continue
        total += tensor.n_bytes * _share(header, tensor, int(block[1]) if block else 0, tied)
    return total


def kv_bytes_per_token(header: Header, kv: str) -> int:
    """Bytes that a token's keys and values take in the cache, over the layers that keep their own.

    Formula: sum over layers of ``kv_heads x (key_length + value_length) x bytes of a block / values in it``.
    A cache of latent attention (MLA) keeps keys alone. Windows do not count: the cache is made for whole contexts.
    """
    return int(sum(layer.kv_bytes for layer in _layers(header, kv) if layer.keeps))


@dataclass(frozen=True, slots=True)
class _Layer:
    """Bytes of a token's keys and values, how far back it looks (None: to the start), whether it keeps its own."""

    kv_bytes: float
    window: int | None
    keeps: bool


def _share(header: Header, tensor: Tensor, layer: int, tied: bool) -> float:
    if tensor.name in _TABLES and not (tied and tensor.name == "token_embd.weight"):
        return 1 / max(1, tensor.rows)
    experts, used = (int(_of_layer(header.arch(f"expert_{key}"), layer) or 0) for key in ("count", "used_count"))
    return used / experts if experts and _EXPERTS.search(tensor.name) else 1.0


def _layer_count(header: Header) -> int:
    """Layers that make the next token: without those that predict further ones (multi-token prediction)."""
    return int(header.arch("block_count", 0) or 0) - int(header.arch("nextn_predict_layers", 0) or 0)


def _layers(header: Header, kv: str) -> Iterator[_Layer]:
    block, n_bytes = BLOCKS[kv]
    heads, layers = header.arch("attention.head_count", 1), _layer_count(header)
    heads_kv = header.arch("attention.head_count_kv", heads)
    size = int(header.arch("embedding_length", 0)) // max(1, int(_of_layer(heads, 0)))
    latent = header.arch("attention.key_length_mla") is not None
    linear = int(header.arch("full_attention_interval", 0) or 0)
    own = layers - int(header.arch("attention.shared_kv_layers", 0) or 0)
    for layer in range(layers):
        window = _window(header, layer)
        key, value = (
            _length(header, f"attention.{part}_length", window is not None, size) for part in ("key", "value")
        )
        values = int(_of_layer(heads_kv, layer)) * (key if latent else key + value)
        recurrent = linear > 0 and (layer + 1) % linear != 0
        yield _Layer(0.0 if recurrent else values * n_bytes / block, window, layer < own)


def _length(header: Header, key: str, windowed: bool, default: int) -> int:
    """Values of a head; layers with a window may have heads of their own size."""
    found = header.arch(f"{key}_swa") if windowed else None
    return int(header.arch(key, default) if found is None else found)


def _window(header: Header, layer: int) -> int | None:
    """Tokens that a layer looks back, or None for all."""
    window = header.arch("attention.sliding_window", 0)
    pattern = header.arch("attention.sliding_window_pattern")
    if not isinstance(window, int) or window <= 0:
        return None
    if isinstance(pattern, tuple):
        return window if layer < len(pattern) and pattern[layer] else None
    first = header.architecture in _FULL_FIRST
    period = _FULL_FIRST.get(header.architecture) or _PERIODS.get(header.architecture)
    if period is None:
        return None
    period = pattern if isinstance(pattern, int) and pattern > 0 else period
    return window if layer % period != (0 if first else period - 1) else None


def _of_layer(value: Any, layer: int) -> Any:
    """A count that the header gives once, or for each layer."""
    return value[min(layer, len(value) - 1)] if isinstance(value, tuple) and value else value


def as_if(header: Header, bits: float) -> Header:
    """The header that a conversion to so many bits a weight would about give: matrices change, vectors stay."""
    tensors = tuple(
        replace(tensor, n_bytes=round(tensor.elements * bits / 8)) if tensor.rows > 1 else tensor
        for tensor in header.tensors
    )
    return Header(header.metadata, tensors)
