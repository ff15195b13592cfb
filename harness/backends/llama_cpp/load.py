"""Opens a model and its contexts, and reads back what the engine really did with the settings."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from harness.backends.base import BackendInfo, EngineSpec
from harness.backends.llama_cpp import amx
from harness.backends.llama_cpp.gguf import Header, read_header
from harness.backends.llama_cpp.library import RECENT_LOG, Context, engine_version, library, library_path
from harness.backends.llama_cpp.traffic import kv_bytes_per_token, traffic
from harness.backends.llama_cpp.vocab import Vocab
from harness.errors import InputError, did_you_mean

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
# Rows of logits reserved at least. With one row the compute buffer is so small that prompts of the default model were
# read 10% slower with AMX kernels (llama.cpp of llama-cpp-python 0.3.36); 16 rows and more made no difference.
LEAST_OUTPUTS = 32
_FLOAT_KV = ("f32", "f16", "bf16")
_GGML_NUMBER = {"f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}


@dataclass(slots=True)
class Model:
    """A loaded model file."""

    handle: Any
    header: Header
    vocab: Vocab
    placement: dict[str, Any]

    @property
    def can_roll_back(self) -> bool:
        """Whether a sequence can be cut anywhere; recurrent memories cannot."""
        low = library()
        return not (low.llama_model_is_recurrent(self.handle) or low.llama_model_is_hybrid(self.handle))

    def close(self) -> None:
        """Free the weights."""
        if self.handle:
            library().llama_model_free(self.handle)
            self.handle = None


def check(spec: EngineSpec) -> None:
    """Raise InputError for settings that the engine cannot honour."""
    if spec.kv not in KV_TYPES:
        raise InputError(f"kv: unknown {spec.kv!r}; {did_you_mean(spec.kv, KV_TYPES)}")
    if spec.kv not in _FLOAT_KV and not spec.flash_attention:
        raise InputError(
            f"kv: {spec.kv} without flash attention; a quantised V cache needs it; set flash_attention: true or kv: f16"
        )
    for name in ("threads", "batch", "ubatch", "ctx"):
        if getattr(spec, name) < 1:
            raise InputError(f"{name}: {getattr(spec, name)}; expected at least 1")
    if spec.speculate.kind != "none" and spec.speculate.tokens < 1:
        raise InputError(f"speculate.tokens: {spec.speculate.tokens}; expected at least 1")


def open_model(path: str, gpu_layers: int) -> Model:
    """Check the file, map it, and load it. Raises InputError where it isn't a whole model that this engine knows."""
    low, header = library(), read_header(path)
    params = low.llama_model_default_params()
    params.n_gpu_layers = gpu_layers
    if hasattr(params, "use_mmap"):
        params.use_mmap = True
    else:
        params.load_mode = low.LLAMA_LOAD_MODE_MMAP
    RECENT_LOG.clear()
    with amx.without_tiles() if amx.fault(library_path()) else nullcontext():
        handle = low.llama_model_load_from_file(path.encode(), params)
    if not handle:
        raise InputError(
            f"{path}: llama.cpp {engine_version()} cannot load architecture {header.architecture!r}; "
            "its log is above; try another model"
        )
    if not low.llama_model_has_decoder(handle) or low.llama_model_has_encoder(handle):
        low.llama_model_free(handle)
        raise InputError(f"{path}: architecture {header.architecture!r} has an encoder; expected a decoder-only model")
    return Model(handle, header, Vocab(handle), _placement(header, gpu_layers))


def new_context(
    model: Model, spec: EngineSpec, *, n_ctx: int, n_seq: int = 1, outputs: int = 0, ubatch: int | None = None
) -> Context:
    """A context with the spec's cache precision, batches and threads.

    Args:
        model: The loaded model.
        spec: Its settings.
        n_ctx: Cells of the cache, shared by all sequences.
        n_seq: Sequences at most.
        outputs: Rows of logits per decode at most (0: as many as tokens). A small number saves memory.
        ubatch: Physical batch, the spec's where None.
    """
    low = library()
    params = low.llama_context_default_params()
    capacity = max(spec.batch, outputs)
    params.n_ctx, params.n_batch, params.n_seq_max = n_ctx, capacity, n_seq
    params.n_ubatch = min(ubatch or spec.ubatch, capacity)
    params.n_threads = params.n_threads_batch = spec.threads
    params.flash_attn_type = (
        low.LLAMA_FLASH_ATTN_TYPE_ENABLED if spec.flash_attention else low.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.type_k = params.type_v = _GGML_NUMBER[spec.kv]
    params.kv_unified, params.swa_full, params.no_perf = True, True, True
    params.op_offload = params.offload_kqv = spec.gpu_layers != 0  # else a GPU would take part in a CPU variant
    if hasattr(params, "n_outputs_max"):
        reserved = min(max(outputs, LEAST_OUTPUTS), capacity) if outputs else 0
        params.n_outputs_max, params.n_outputs_max_per_seq = reserved, 0
    handle = low.llama_init_from_model(model.handle, params)
    if not handle:
        raise InputError(
            f"ctx {n_ctx}, kv {spec.kv}, batch {spec.batch}: llama.cpp cannot create this context; "
            "its log is above; lower ctx or change kv"
        )
    return Context(handle, n_vocab=model.vocab.size, capacity=capacity, n_seq_max=n_seq)


def _placement(header: Header, gpu_layers: int) -> dict[str, Any]:
    low, log = library(), "".join(RECENT_LOG)
    offloaded = re.search(r"offloaded (\d+)/(\d+) layers", log)
    kinds: Counter[str] = Counter()
    for tensor in header.tensors:
        kinds[tensor.kind] += tensor.elements
    n_bytes = sum(tensor.n_bytes for tensor in header.tensors)
    return {
        "system_info": (low.llama_print_system_info() or b"").decode().strip(),
        "gpu_offload_supported": bool(low.llama_supports_gpu_offload()),
        "amx": f"off: {fault}" if (fault := amx.fault(library_path())) else "as built",
        "gpu_layers_asked": gpu_layers,
        "gpu_layers": int(offloaded.group(1)) if offloaded else 0,
        "buffers_mib": {
            name: float(size) for name, size in re.findall(r"(\S+) model buffer size =\s*([\d.]+) MiB", log)
        },
        "tensor_types": {kind: count / header.elements for kind, count in kinds.most_common()},
        "bits_per_weight": 8 * n_bytes / header.elements,
    }


def describe(spec: EngineSpec, model: Model, draft: Model | None, context: Context) -> BackendInfo:
    """What was loaded, read back from the engine and the file's header."""
    low, header = library(), model.header
    reads = traffic(header, spec.kv)
    per_token, n_ctx = kv_bytes_per_token(header, spec.kv), context.n_ctx
    placement = dict(model.placement)
    placement |= {"reads": reads.as_dict(), "flash_attention": spec.flash_attention, "kv": spec.kv}
    draft_kv = 0
    if draft:
        draft_kv = kv_bytes_per_token(draft.header, spec.kv) * n_ctx
        placement |= {"draft_kv_bytes": draft_kv, "draft_gpu_layers": draft.placement["gpu_layers"]}
        placement["draft_reads"] = traffic(draft.header, spec.kv).as_dict()
    return BackendInfo(
        engine="llama.cpp",
        engine_version=engine_version(),
        model_name=str(header.metadata.get("general.name", "unknown")),
        architecture=header.architecture,
        n_params=int(low.llama_model_n_params(model.handle)),
        n_vocab=model.vocab.size,
        n_ctx=n_ctx,
        n_ctx_train=int(low.llama_model_n_ctx_train(model.handle)),
        n_layers=int(low.llama_model_n_layer(model.handle)),
        weight_bytes=int(low.llama_model_size(model.handle)),
        draft_weight_bytes=int(low.llama_model_size(draft.handle)) if draft else 0,
        kv_bytes=per_token * n_ctx + draft_kv,
        kv_bytes_per_token=per_token,
        active_bytes_per_token=round(reads.weight_bytes),
        adds_bos=model.vocab.adds_bos,
        has_chat_template=model.vocab.chat_template is not None,
        threads=int(low.llama_n_threads(context.handle)),
        can_roll_back=model.can_roll_back,
        placement=placement,
    )
