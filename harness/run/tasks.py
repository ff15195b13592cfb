"""What a worker does for the suites: drives the engine, stamps time, returns raw rows. Derives no figure.

Each function takes the loaded backend and ``send``, which streams ``{"key", "kind", "payload"}`` rows.
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.backends.base import Backend, Emission, GenerateEnd, GenerateRequest, ScoreRequest, ScoreResult
from harness.run.clock import now_ns
from harness.suites.encoding import encode_pair

if TYPE_CHECKING:
    from harness.suites.code_syntax import Prompt
    from harness.suites.long_context import Probe

Send = Callable[[Any], None]


def _row(key: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "kind": kind, "payload": payload}


def stream(
    backend: Backend, request: GenerateRequest
) -> tuple[int, list[tuple[int, list[int]]], list[float], GenerateEnd]:
    """Run one generation and stamp each emission as its tokens reach the host.

    Returns:
        ``(sent_ns, [(t_ns, token ids)], margins, end)``.
    """
    stamps: list[tuple[int, list[int]]] = []
    margins: list[float] = []
    end: GenerateEnd | None = None
    # A collection in mid-stream would show as jitter that the engine does not have.
    gc.collect()
    gc.disable()
    try:
        sent_ns = now_ns()
        for part in backend.generate(request):
            arrived = now_ns()
            if isinstance(part, Emission):
                stamps.append((arrived, part.tokens))
                margins.extend(part.margins or ())
            else:
                end = part
    finally:
        gc.enable()
    if end is None:
        raise RuntimeError("the engine's stream ended without an end")
    return sent_ns, stamps, margins, end


def record_of(backend: Backend, request: GenerateRequest) -> dict[str, Any]:
    """One generation as the stored form of a ``RequestRecord``."""
    sent_ns, stamps, _, end = stream(backend, request)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    events = []
    for t_ns, tokens in stamps:
        raw = backend.detokenize(tokens)
        events.append([t_ns, len(tokens), len(decoder.decode(raw)), "content", len(raw)])
    output_tokens = sum(len(tokens) for _, tokens in stamps)
    codes = []
    if end.finish_reason == "nonfinite":
        codes.append("nonfinite")
    if request.ignore_eos and output_tokens < request.max_tokens:
        codes.append("short_output")
    return {
        "sent_ns": sent_ns,
        "events": events,
        "prompt_tokens": len(request.prompt),
        "output_tokens": output_tokens,
        "token_source": "engine",
        "finish_reason": end.finish_reason,
        "asked_tokens": request.max_tokens if request.ignore_eos else None,
        "drafted": end.drafted,
        "accepted": end.accepted,
        "verify_steps": end.verify_steps,
        "codes": codes,
    }


def tokenize(backend: Backend, send: Send, text: str) -> list[int]:
    """Token ids of a text, with BOS where the model wants one."""
    return backend.tokenize(text, bos=True)


def loglikelihood(backend: Backend, send: Send, pairs: Sequence[tuple[str, str]]) -> int:
    """Score text pairs; rows are ``(index, {"logprob", "is_greedy", "n_tokens", "finite"})``. Returns tokens scored."""
    info_bos = backend.tokenize("", bos=True)
    prefix = info_bos[0] if info_bos else backend.tokenize("\n")[0]

    def tokenize(text: str) -> list[int]:
        return backend.tokenize(text, bos=True)

    requests = []
    for context, continuation in pairs:
        head, tail = encode_pair(tokenize, context, continuation, prefix)
        requests.append(ScoreRequest(tuple(head), tuple(tail)))

    def on_result(index: int, result: ScoreResult) -> None:
        send((index, _scored(result)))

    backend.score(requests, on_result)
    return sum(len(request.continuation) for request in requests)


def _scored(result: ScoreResult) -> dict[str, Any]:
    return {
        "logprob": result.logprob if result.finite else None,
        "is_greedy": result.is_greedy,
        "n_tokens": result.n_tokens,
        "finite": result.finite,
    }


def kl_reference(backend: Backend, send: Send, tokens: Sequence[int], path: str) -> int:
    """Write the reference's logits over a text to a .npy file: float32, (positions, vocabulary). Returns positions."""
    out: np.memmap[Any, Any] | None = None
    for start, chunk in backend.logits(tokens):
        if out is None:
            out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(tokens), chunk.shape[1]))
        out[start : start + len(chunk)] = chunk
    if out is None:
        raise RuntimeError("no logits came back")
    out.flush()
    return len(tokens)


def kl(
    backend: Backend, send: Send, tokens: Sequence[int], path: str, done: Sequence[str] = (), batch: int | None = None
) -> int:
    """Compare this variant's logits with the reference's, chunk by chunk. Rows of kind ``kl``. Returns positions."""
    from harness.suites.fidelity import kl_payload, kl_rows

    reference = np.load(path, mmap_mode="r")
    for start, chunk in backend.logits(tokens, batch=batch):
        key = f"{start:06d}"
        if key not in done:
            rows = kl_rows(np.asarray(reference[start : start + len(chunk)]), chunk)
            send(_row(key, "kl", kl_payload(start, rows)))
    return len(tokens)


def greedy(backend: Backend, send: Send, prompts: Sequence[tuple[str, str]], max_tokens: int) -> int:
    """Greedy continuations of ``(id, text)`` prompts with the top-2 margin at each step. Returns tokens generated."""
    total = 0
    for name, text in prompts:
        request = GenerateRequest(tuple(backend.tokenize(text, bos=True)), max_tokens, ignore_eos=True, margins=True)
        _, stamps, margins, end = stream(backend, request)
        tokens = [token for _, part in stamps for token in part]
        payload = {"prompt": name, "tokens": tokens, "margins": margins, "finish_reason": end.finish_reason}
        send(_row(name, "greedy", payload))
        total += len(tokens)
    return total


def probes(
    backend: Backend,
    send: Send,
    kind: str,
    seed: int,
    depths: Sequence[int],
    per_depth: int,
    done: Sequence[str] = (),
) -> int:
    """Score the forced choices of one long text at each depth; the text is evaluated once. Returns probes scored."""
    from harness.suites.long_context import generate

    def plain(text: str) -> list[int]:
        return backend.tokenize(text)

    ledger = max(1, per_depth // 3)  # each ledger fact is asked in two wordings
    other = max(1, (per_depth - 2 * ledger) // 2)
    text = generate(
        kind,  # type: ignore[arg-type]
        seed,
        max(depths),
        lambda piece: len(plain(piece)),
        depths,
        ledger=ledger,
        multikey=other,
        tracking=other,
    )
    document: list[int] = backend.tokenize("", bos=True)
    ends: dict[int, int] = {}
    for (depth, _), segment in zip(text.cuts, text.segments(), strict=False):
        document += plain(segment)
        ends[depth] = len(document)
    asked = [probe for depth, _ in text.cuts for probe in text.probes[depth] if probe.id not in done]
    requests: list[tuple[int, ScoreRequest]] = []
    owners: list[tuple[int, int]] = []
    for number, probe in enumerate(asked):
        for option, words in enumerate(probe.options):
            head, tail = encode_pair(plain, probe.stem, words)
            requests.append((ends[probe.depth], ScoreRequest(tuple(head), tuple(tail))))
            owners.append((number, option))
    found: dict[int, dict[int, ScoreResult]] = {}

    def on_result(index: int, result: ScoreResult) -> None:
        number, option = owners[index]
        options = found.setdefault(number, {})
        options[option] = result
        if len(options) == len(asked[number].options):
            send(_probe_row(text.id, asked[number], ends[asked[number].depth], options))

    if requests:
        backend.score_at_depths(document[: max(depth for depth, _ in requests)], requests, on_result)
    return len(asked)


def _probe_row(text: str, probe: Probe, tokens_before: int, options: Mapping[int, ScoreResult]) -> dict[str, Any]:
    ordered = [options[index] for index in range(len(probe.options))]
    payload = {
        "text": text,
        "depth": probe.depth,
        "tokens_before": tokens_before,
        "family": probe.family,
        "fact": probe.fact,
        "asked": probe.asked,
        "gold": probe.gold,
        "logprobs": [option.logprob if option.finite else None for option in ordered],
        "finite": all(option.finite for option in ordered),
    }
    return _row(probe.id, "probe", payload)


def continuation(backend: Backend, send: Send, kind: str, seed: int, start: int, max_tokens: int) -> int:
    """A free greedy continuation after ``start`` tokens of a generated text. Returns tokens generated."""
    from harness.suites.long_context import generate

    text = generate(kind, seed, start, lambda piece: len(backend.tokenize(piece)), ())  # type: ignore[arg-type]
    prompt = backend.tokenize(text.text, bos=True)[:start]
    _, stamps, _, end = stream(backend, GenerateRequest(tuple(prompt), max_tokens, ignore_eos=True))
    tokens = [token for _, part in stamps for token in part]
    payload = {"text": text.id, "tokens": tokens, "output": end.text, "finish_reason": end.finish_reason}
    send(_row(text.id, "continuation", payload))
    return len(tokens)


def programs(backend: Backend, send: Send, limit: int | None, max_tokens: int, done: Sequence[str] = ()) -> int:
    """Complete the code prompts that are not done. Returns how many."""
    from harness.suites.code_syntax import prompts

    todo = [prompt for prompt in prompts(limit) if prompt.id not in done]
    for prompt in todo:
        text, reason, n_tokens = _program(backend, prompt, max_tokens)
        payload = {
            "prompt": prompt.id,
            "language": prompt.language,
            "output": text,
            "finish_reason": reason,
            "n_tokens": n_tokens,
        }
        send(_row(prompt.id, "program", payload))
    return len(todo)


def _program(backend: Backend, prompt: Prompt, max_tokens: int) -> tuple[str, str, int]:
    """One completion, ended where the function's block is closed: what comes after cannot change the verdict.

    Returns:
        ``(text, finish_reason, tokens generated)``.
    """
    from harness.suites.code_syntax import closed

    request = GenerateRequest(tuple(backend.tokenize(prompt.text, bos=True)), max_tokens, stop=prompt.stops)
    tokens: list[int] = []
    parts = backend.generate(request)
    for part in parts:
        if isinstance(part, GenerateEnd):
            return part.text, part.finish_reason, len(tokens)
        tokens += part.tokens
        if b"\n" in backend.detokenize(part.tokens):
            text = backend.detokenize(tokens).decode(errors="replace")
            if closed(prompt, text):
                return text, "stop", len(tokens)
    raise RuntimeError("the engine's stream ended without an end")
