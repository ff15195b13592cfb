"""Whether every variant can fit in this machine's memory, before anything is loaded. Reads files' headers only."""

from __future__ import annotations

from collections.abc import Mapping

from harness.backends.base import EngineSpec
from harness.backends.llama_cpp.gguf import Header, read_header
from harness.backends.llama_cpp.score_plan import cells
from harness.backends.llama_cpp.traffic import kv_bytes_per_token
from harness.costs import Footprint, longest_scored
from harness.errors import InputError
from harness.settings import UNQUANTISED
from harness.suite_plans import SuitePlan
from harness.units import si


def check_memory(specs: Mapping[str, EngineSpec], suites: SuitePlan, available: int | None) -> None:
    """Refuse variants whose process cannot fit; those on a GPU and of other engines are not judged.

    Args:
        specs: Engine settings by variant name.
        suites: What will be scored.
        available: Bytes that could still be used, the control group's limit respected; None where not known.

    Raises:
        InputError: A line for each variant that does not fit: what it needs, item by item, and what is there.
    """
    if available is None:
        return
    judged = {name: spec for name, spec in specs.items() if spec.backend == "llama_cpp" and spec.gpu_layers == 0}
    faults = [
        _fault(name, spec, needed, available)
        for name, spec in judged.items()
        if (needed := footprint(spec, suites)).total > available
    ]
    if faults:
        raise InputError("\n".join(faults))


def footprint(spec: EngineSpec, suites: SuitePlan) -> Footprint:
    """What a variant's process will hold, from its files' headers. Raises InputError where these make no sense."""
    try:
        return _footprint(spec, suites)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{spec.model_path}: its header's counts are no numbers ({error}); expected a model that llama.cpp loads"
        ) from error


def _footprint(spec: EngineSpec, suites: SuitePlan) -> Footprint:
    header = read_header(spec.model_path)
    draft_path = spec.speculate.draft_path if spec.speculate.kind == "draft_model" else None
    draft = read_header(draft_path) if draft_path else None
    ubatch, longest = min(spec.ubatch, spec.batch), longest_scored(suites, spec.ctx)
    heads = header.arch("attention.head_count", 1)
    return Footprint(
        weight_bytes=_weights(header),
        draft_bytes=_weights(draft) if draft else 0,
        kv_bytes=kv_bytes_per_token(header, spec.kv),
        draft_kv_bytes=kv_bytes_per_token(draft, spec.kv) if draft else 0,
        heads=int(max(heads) if isinstance(heads, tuple) else heads),
        n_vocab=vocabulary(header),
        ctx=spec.ctx,
        scoring_cells=cells(longest, spec.ctx, ubatch) if longest else 0,
        ubatch=ubatch,
        flash_attention=spec.flash_attention,
    )


def vocabulary(header: Header) -> int:
    """Tokens of the vocabulary: rows of the embedding; 0 where the header does not tell."""
    width = int(header.arch("embedding_length", 0) or 0)
    rows = [tensor.elements // width for tensor in header.tensors if width and tensor.name == "token_embd.weight"]
    return rows[0] if rows else 0


def _weights(header: Header) -> int:
    return sum(tensor.n_bytes for tensor in header.tensors)


def _fault(name: str, spec: EngineSpec, needed: Footprint, available: int) -> str:
    parts = ", ".join(f"{what} {si(n_bytes, 'B')}" for what, n_bytes in needed.items().items())
    advice = ["lower settings.ctx"]
    if spec.kv in UNQUANTISED:
        advice.append("take kv: q8_0")
    advice += ["take fewer bits for the weights", "use a machine with more memory"]
    return (
        f"{name}: needs about {si(needed.total, 'B')} of memory ({parts}); "
        f"{si(available, 'B')} are available; {', or '.join([', '.join(advice[:-1]), advice[-1]])}"
    )
