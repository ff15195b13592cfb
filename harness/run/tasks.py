"""What a worker generates for the suites: drives the engine, stamps time, returns raw rows. Derives no figure.

Each function takes the loaded backend and ``send``, which streams ``{"key", "kind", "payload"}`` rows.
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.backends.base import Backend, Emission, GenerateEnd, GenerateRequest
from harness.run.clock import now_ns

if TYPE_CHECKING:
    from harness.suites.code_syntax import Prompt

Send = Callable[[Any], None]


def row_of(key: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """One row as a worker sends it."""
    return {"key": key, "kind": kind, "payload": payload}


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: one in mid-stream would show as jitter that the engine does not have."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
    with no_collection():
        sent_ns = now_ns()
        for part in backend.generate(request):
            arrived = now_ns()
            if isinstance(part, Emission):
                stamps.append((arrived, part.tokens))
                margins.extend(part.margins or ())
            else:
                end = part
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
        "drafted_at": end.drafted_at,
        "accepted_at": end.accepted_at,
        "draft_s": end.draft_s,
        "verify_s": end.verify_s,
        "codes": codes,
    }


def tokenize(backend: Backend, send: Send, text: str) -> list[int]:
    """Token ids of a text, with BOS where the model wants one."""
    return backend.tokenize(text, bos=True)


def render_chat(backend: Backend, send: Send, messages: Sequence[Mapping[str, str]]) -> str:
    """The model's chat template applied to messages."""
    return backend.render_chat(messages)


def asked(backend: Backend, text: str, chat: bool) -> list[int]:
    """Token ids of a prompt: the text itself, or one user message in the model's chat template."""
    if not chat:
        return backend.tokenize(text, bos=True)
    return backend.tokenize(backend.render_chat([{"role": "user", "content": text}]), special=True, bos=True)


def greedy(
    backend: Backend, send: Send, prompts: Sequence[tuple[str, str]], max_tokens: int, chat: bool = False
) -> int:
    """Greedy continuations of ``(id, text)`` prompts with the top-2 margin at each step. Returns tokens generated."""
    total = 0
    for name, text in prompts:
        request = GenerateRequest(tuple(asked(backend, text, chat)), max_tokens, ignore_eos=True, margins=True)
        _, stamps, margins, end = stream(backend, request)
        tokens = [token for _, part in stamps for token in part]
        payload = {"prompt": name, "tokens": tokens, "margins": margins, "finish_reason": end.finish_reason}
        send(row_of(name, "greedy", payload))
        total += len(tokens)
    return total


def audit(
    backend: Backend, send: Send, prompts: Sequence[tuple[str, str]], max_tokens: int, batch: int, chat: bool = False
) -> int:
    """Greedy continuations with speculation and without it, and how far rounding moves the latter's margins.

    The plain text is evaluated once more, ``batch`` tokens at a time as a verification does: ``floor`` is by how much
    each position's margin changes. Returns tokens generated.
    """
    total = 0
    for name, text in prompts:
        request = GenerateRequest(tuple(asked(backend, text, chat)), max_tokens, ignore_eos=True)
        _, stamps, _, end = stream(backend, request)
        _, plain_stamps, margins, plain_end = stream(backend, replace(request, speculate=False, margins=True))
        tokens, plain = ([token for _, part in found for token in part] for found in (stamps, plain_stamps))
        again = backend.margins(request.prompt, plain, batch=batch) if plain else []
        payload = {
            "prompt": name,
            "tokens": tokens,
            "plain": plain,
            "margins": margins,
            "floor": [None if b is None else abs(b - a) for a, b in zip(margins, again, strict=True)],
            "batch": batch,
            "finish_reason": end.finish_reason,
            "plain_finish_reason": plain_end.finish_reason,
        }
        send(row_of(name, "audit", payload))
        total += len(tokens) + len(plain)
    return total


def continuation(backend: Backend, send: Send, kind: str, seed: int, start: int, max_tokens: int) -> int:
    """A free greedy continuation after ``start`` tokens of a generated text. Returns tokens generated."""
    from harness.suites.long_context import generate

    text = generate(kind, seed, start, lambda piece: len(backend.tokenize(piece)), ())  # type: ignore[arg-type]
    prompt = backend.tokenize(text.text, bos=True)[:start]
    _, stamps, _, end = stream(backend, GenerateRequest(tuple(prompt), max_tokens, ignore_eos=True))
    tokens = [token for _, part in stamps for token in part]
    payload = {"text": text.id, "tokens": tokens, "output": end.text, "finish_reason": end.finish_reason}
    send(row_of(text.id, "continuation", payload))
    return len(tokens)


def programs(
    backend: Backend, send: Send, limit: int | None, max_tokens: int, done: Sequence[str] = (), chat: bool = False
) -> int:
    """Complete the code prompts that are not done. Returns how many."""
    from harness.suites.code_syntax import prompts

    todo = [prompt for prompt in prompts(limit) if prompt.id not in done]
    for prompt in todo:
        text, reason, tokens = (_answer if chat else _program)(backend, prompt, max_tokens)
        payload = {
            "prompt": prompt.id,
            "language": prompt.language,
            "output": text,
            "finish_reason": reason,
            "n_tokens": len(tokens),
            "tokens": tokens,
            "form": "chat" if chat else "completion",
        }
        send(row_of(prompt.id, "program", payload))
    return len(todo)


def _program(backend: Backend, prompt: Prompt, max_tokens: int) -> tuple[str, str, list[int]]:
    """One completion, ended where the function's block is closed: what comes after cannot change the verdict.

    Returns:
        ``(text, finish_reason, the tokens generated)``.
    """
    from harness.suites.code_syntax import closed

    request = GenerateRequest(tuple(backend.tokenize(prompt.text, bos=True)), max_tokens, stop=prompt.stops)
    tokens: list[int] = []
    parts = backend.generate(request)
    for part in parts:
        if isinstance(part, GenerateEnd):
            return part.text, part.finish_reason, tokens
        tokens += part.tokens
        if b"\n" in backend.detokenize(part.tokens):
            text = backend.detokenize(tokens).decode(errors="replace")
            if closed(prompt, text):
                return text, "stop", tokens
    raise RuntimeError("the engine's stream ended without an end")


def _answer(backend: Backend, prompt: Prompt, max_tokens: int) -> tuple[str, str, list[int]]:
    """The same asked in a chat; the answer may bring prose and fences, which extraction takes away."""
    text = f"Complete this {prompt.language} code. Answer with the whole code in one block.\n\n{prompt.text}"
    _, stamps, _, end = stream(backend, GenerateRequest(tuple(asked(backend, text, True)), max_tokens))
    return end.text, end.finish_reason, [token for _, part in stamps for token in part]


def write(
    backend: Backend,
    send: Send,
    requests: Sequence[tuple[str, Mapping[str, Any]]],
    room: int,
    chat: bool = False,
) -> int:
    """Answers in free text to ``(prompt, settings)``; rows are ``(index, {"text", "finish_reason", ...})``.

    Settings are those of a ``GenerateRequest``. A prompt that leaves no room for its answer loses its beginning, as in
    lm-eval; ``cut`` says how many tokens. Returns tokens generated.
    """
    total = 0
    for index, (text, settings) in enumerate(requests):
        most = min(int(settings["max_tokens"]), room - 1)
        prompt = backend.tokenize(text, special=chat, bos=True) or [backend.start_token()]
        over = max(0, len(prompt) - (room - most))
        request = GenerateRequest(
            tuple(prompt[over:]), **{**settings, "max_tokens": most, "stop": tuple(settings["stop"])}
        )
        _, stamps, _, end = stream(backend, request)
        n_tokens = sum(len(part) for _, part in stamps)
        row = {"text": end.text, "finish_reason": end.finish_reason, "n_tokens": n_tokens, "cut": over}
        send((index, {**row, "finite": end.finish_reason != "nonfinite"}))
        total += n_tokens
    return total
