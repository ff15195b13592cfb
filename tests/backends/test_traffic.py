"""Bytes read per token, worked by hand on small files, and held against the default model's own file sizes."""

from __future__ import annotations

import pytest

from harness.backends.llama_cpp.gguf import read_header
from harness.backends.llama_cpp.traffic import kv_bytes_per_token, traffic, weight_bytes

F32, F16, Q8_0 = 0, 1, 8
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.embedding_length": 576,
}
EMBEDDING = ("token_embd.weight", (64, 10), Q8_0)  # 10 rows of 2 blocks of 34 bytes
NORM, BIAS = ("output_norm.weight", (64,), F32), ("blk.0.attn_q.bias", (64,), F32)
QUERY = ("blk.0.attn_q.weight", (64, 64), Q8_0)  # 64 rows of 68 bytes


def two_layers(architecture: str, **more: object) -> dict:
    """Layers of 2 key-value heads with 8 values each in keys and in values: 64 bytes a token and layer in f16."""
    plain = {"block_count": 2, "attention.head_count": 4, "attention.head_count_kv": 2, "embedding_length": 32}
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{key}": value for key, value in {**plain, **more}.items()},
    }


def test_a_tied_embedding_is_the_output_matrix_and_counts_once(gguf_file):
    header = read_header(gguf_file(tensors=(EMBEDDING, NORM, BIAS, QUERY)))
    assert weight_bytes(header) == 680 + 256 + 256 + 64 * 68


def test_of_an_untied_embedding_one_row_is_read(gguf_file):
    output = ("output.weight", (64, 10), F16)
    header = read_header(gguf_file(tensors=(EMBEDDING, NORM, QUERY, output)))
    assert weight_bytes(header) == 680 / 10 + 256 + 64 * 68 + 1280


def test_of_tables_by_layer_and_by_position_one_row_is_read(gguf_file):
    tables = (("per_layer_token_embd.weight", (128, 10), F16), ("position_embd.weight", (64, 50), F32))
    header = read_header(gguf_file(tensors=(EMBEDDING, *tables)))
    assert weight_bytes(header) == 680 + 256 + 256


def test_of_a_mixture_the_routed_experts_the_router_and_the_shared_expert_are_read(gguf_file):
    metadata = {"general.architecture": "llama", "llama.expert_count": 8, "llama.expert_used_count": 2}
    tensors = (
        ("blk.0.attn_q.weight", (4, 4), F32),  # 64
        ("blk.0.ffn_gate_inp.weight", (4, 8), F32),  # the router, 128
        ("blk.0.ffn_up_exps.weight", (4, 4, 8), F32),  # 512, a quarter of it
        ("blk.0.ffn_up_exps.bias", (4, 8), F32),  # 128, a quarter of it
        ("blk.0.ffn_up_shexp.weight", (4, 4), F32),  # shared, 64
        ("output.weight", (4, 4), F32),  # 64
    )
    assert weight_bytes(read_header(gguf_file(metadata=metadata, tensors=tensors))) == 64 + 128 + 128 + 32 + 64 + 64


def test_experts_in_tensors_of_their_own_count_by_the_same_share(gguf_file):
    metadata = {"general.architecture": "llama", "llama.expert_count": 4, "llama.expert_used_count": 1}
    experts = tuple((f"blk.0.ffn_up.{i}.weight", (4, 4), F32) for i in range(4))
    assert weight_bytes(read_header(gguf_file(metadata=metadata, tensors=experts))) == 64


def test_experts_used_may_differ_by_layer(gguf_file):
    metadata = {
        "general.architecture": "llama", "llama.block_count": 2, "llama.expert_count": 4,
        "llama.expert_used_count": (1, 2),
    }  # fmt: skip
    tensors = tuple((f"blk.{i}.ffn_up_exps.weight", (4, 4, 4), F32) for i in range(2))
    assert weight_bytes(read_header(gguf_file(metadata=metadata, tensors=tensors))) == 64 + 128


def test_layers_that_predict_further_tokens_are_not_read(gguf_file):
    metadata = two_layers("glm4moe", nextn_predict_layers=1)
    tensors = tuple((f"blk.{i}.attn_q.weight", (4, 4), F32) for i in range(2))
    header = read_header(gguf_file(metadata=metadata, tensors=(*tensors, ("blk.1.nextn.enorm.weight", (4,), F32))))
    assert weight_bytes(header) == 64
    assert kv_bytes_per_token(header, "f16") == 64


@pytest.mark.parametrize(
    ("kv", "n_bytes"), [("f32", 23040 * 2), ("f16", 23040), ("q8_0", 23040 // 2 // 32 * 34), ("q4_0", 11520 // 32 * 18)]
)
def test_keys_and_values_by_precision(gguf_file, kv, n_bytes):
    header = read_header(gguf_file(metadata=LLAMA))
    assert kv_bytes_per_token(header, kv) == n_bytes  # 30 layers x 3 heads x (64 + 64) values
    assert traffic(header, kv).kv == ((float(n_bytes), None),)


def test_keys_and_values_of_their_own_length(gguf_file):
    lengths = {"llama.attention.key_length": 96, "llama.attention.value_length": 32}
    assert kv_bytes_per_token(read_header(gguf_file(metadata=LLAMA | lengths)), "f16") == 30 * 3 * 128 * 2


def test_heads_by_layer_and_layers_without(gguf_file):
    metadata = two_layers("lfm2", **{"attention.head_count_kv": (2, 0)})
    assert kv_bytes_per_token(read_header(gguf_file(metadata=metadata)), "f16") == 64


def test_layers_with_linear_attention_keep_no_keys(gguf_file):
    metadata = two_layers("qwen3next", block_count=8, full_attention_interval=4)
    assert kv_bytes_per_token(read_header(gguf_file(metadata=metadata)), "f16") == 2 * 64


def test_latent_attention_keeps_keys_alone(gguf_file):
    latent = {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512}
    metadata = two_layers("deepseek2", **latent, **{"attention.key_length_mla": 192})
    assert kv_bytes_per_token(read_header(gguf_file(metadata=metadata)), "f16") == 2 * 576 * 2


@pytest.mark.parametrize(
    ("architecture", "more", "groups"),
    [
        ("gemma2", {}, ((64.0, 16), (64.0, None))),  # every second layer attends to all
        ("gemma2", {"attention.sliding_window_pattern": (False, True)}, ((64.0, None), (64.0, 16))),
        ("smallthinker", {}, ((64.0, None), (64.0, 16))),  # the first of four attends to all
        ("llama", {}, ((128.0, None),)),  # a window that llama.cpp does not apply
        ("gemma4", {"attention.sliding_window_pattern": (True, True)}, ((128.0, 16),)),
    ],
)
def test_windows(gguf_file, architecture, more, groups):
    metadata = two_layers(architecture, **{"attention.sliding_window": 16, **more})
    header = read_header(gguf_file(metadata=metadata))
    assert traffic(header, "f16").kv == groups
    assert kv_bytes_per_token(header, "f16") == 128  # the cache is made for whole contexts


def test_layers_with_a_window_may_have_heads_of_their_own_size(gguf_file):
    more = {"attention.sliding_window": 16, "attention.key_length_swa": 4, "attention.value_length_swa": 4}
    header = read_header(gguf_file(metadata=two_layers("gemma2", **more)))
    assert traffic(header, "f16").kv == ((32.0, 16), (64.0, None))


def test_layers_that_share_keys_read_them_and_keep_none(gguf_file):
    header = read_header(gguf_file(metadata=two_layers("gemma3n", **{"attention.shared_kv_layers": 1})))
    assert kv_bytes_per_token(header, "f16") == 64
    assert traffic(header, "f16").kv == ((128.0, None),)


@pytest.mark.engine
@pytest.mark.parametrize(("weights", "bits"), [("f16", 16), ("q8_0", 8.5), ("q4_0", 4.5)])
def test_the_default_model_reads_its_whole_file_but_the_header(demo_model_dir, weights, bits):
    path = demo_model_dir / f"{weights}.gguf"
    header = read_header(path)
    read, kept = weight_bytes(header), sum(tensor.n_bytes for tensor in header.tensors)
    assert read == kept  # tied: the embedding is the output matrix
    # What is left of the file is its header: the vocabulary, some 2 MB.
    assert 0 < path.stat().st_size - read < 3e6
    assert read >= header.elements * bits / 8  # norms are F32, and Q4_0's embedding keeps 8.5 bits
    assert kv_bytes_per_token(header, "f16") == 2 * 30 * 3 * 64 * 2
