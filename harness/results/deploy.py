"""The command line that serves a variant as it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any


def command(spec: Mapping[str, Any]) -> str:
    """A ``llama-server`` command; for prompt lookup, llama-cpp-python's server, which has it built in.

    Args:
        spec: The stored engine settings.
    """
    speculate = spec["speculate"]
    if spec["backend"] != "llama_cpp":
        return f"# backend {spec['backend']}: no server command is known"
    if speculate["kind"] == "prompt_lookup":
        words = [
            "python", "-m", "llama_cpp.server", "--model", spec["model_path"], "--n_ctx", spec["ctx"],
            "--n_threads", spec["threads"], "--n_threads_batch", spec["threads"], "--n_batch", spec["batch"],
            "--n_gpu_layers", spec["gpu_layers"], "--draft_model", "prompt-lookup-decoding",
            "--draft_model_num_pred_tokens", speculate["tokens"],
        ]  # fmt: skip
        return shlex.join(map(str, words))
    words = [
        "llama-server", "--model", spec["model_path"], "--ctx-size", spec["ctx"], "--parallel", 1,
        "--threads", spec["threads"], "--batch-size", spec["batch"], "--ubatch-size", spec["ubatch"],
        "--n-gpu-layers", spec["gpu_layers"], "--flash-attn", "on" if spec["flash_attention"] else "off",
    ]  # fmt: skip
    if spec["kv"] != "f16":
        words += ["--cache-type-k", spec["kv"], "--cache-type-v", spec["kv"]]
    if speculate["kind"] == "draft_model":
        words += ["--spec-type", "draft-simple", "--model-draft", speculate["draft_path"]]
        words += ["--spec-draft-n-max", speculate["tokens"]]
    return shlex.join(map(str, words))


def needs(spec: Mapping[str, Any]) -> str:
    """What must be installed for the command to run."""
    if spec["backend"] != "llama_cpp":
        return ""
    # Older runs know no adapting draft length.
    fixed = "; it drafts a fixed number of tokens, not an adapting one as measured"
    note = fixed if spec["speculate"].get("adapt") else ""
    if spec["speculate"]["kind"] == "prompt_lookup":
        return f"pip install 'llama-cpp-python[server]'{note}"
    return f"llama-server, part of llama.cpp (https://github.com/ggml-org/llama.cpp){note}"
