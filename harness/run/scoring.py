"""What a worker scores for the suites: log-likelihoods and logits, as raw rows. Derives no figure, stamps no time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.backends.base import Backend, ScoreRequest, ScoreResult
from harness.run.tasks import row_of
from harness.suites.encoding import encode_pair, windows

if TYPE_CHECKING:
    from harness.suites.long_context import Probe

Send = Callable[[Any], None]
# Positions of one row of the noise floor.
FLOOR_ROWS = 32


def loglikelihood(
    backend: Backend, send: Send, pairs: Sequence[tuple[str, str]], chat: bool = False, room: int | None = None
) -> int:
    """Score text pairs; rows are ``(index, {"logprob", "is_greedy", "n_tokens", "finite"})``. Returns tokens scored.

    With ``chat`` the texts hold a rendered template, whose marks are read as special tokens. With ``room``, the tokens
    that fit, a longer pair loses the beginning of its context, as in lm-eval; ``cut`` says how many tokens.
    """
    prefix = backend.start_token()

    def tokenize(text: str) -> list[int]:
        return backend.tokenize(text, special=chat, bos=True)

    requests, cuts = [], []
    for context, continuation in pairs:
        head, tail = encode_pair(tokenize, context, continuation, prefix)
        # A token of the context always stays: without one there is nothing to score after.
        over = 0 if room is None else min(len(head) - 1, max(0, len(head) + len(tail) - room))
        requests.append(ScoreRequest(tuple(head[over:]), tuple(tail)))
        cuts.append(over)

    def on_result(index: int, result: ScoreResult) -> None:
        send((index, _scored(result) if room is None else {**_scored(result), "cut": cuts[index]}))

    backend.score(requests, on_result)
    return sum(len(request.continuation) for request in requests)


def _scored(result: ScoreResult) -> dict[str, Any]:
    return {
        "logprob": result.logprob if result.finite else None,
        "is_greedy": result.is_greedy,
        "n_tokens": result.n_tokens,
        "finite": result.finite,
    }


def rolling(backend: Backend, send: Send, texts: Sequence[str], room: int) -> int:
    """Log-likelihood of whole texts; rows are ``(index, {"logprob", "n_tokens", "finite", "windows"})``.

    A text longer than ``room`` is scored in windows: each token once, and the last window's earlier tokens are its
    context, as in lm-eval (``get_rolling_token_windows`` with one token of context). Returns tokens scored.
    """
    requests, owners = [], []
    for number, text in enumerate(texts):
        tokens = backend.tokenize(text)
        for context, continuation in windows([backend.start_token(), *tokens], room):
            requests.append(ScoreRequest(tuple(context), tuple(continuation)))
            owners.append(number)
    left = Counter(owners)
    found: dict[int, list[ScoreResult]] = defaultdict(list)

    def on_result(index: int, result: ScoreResult) -> None:
        number = owners[index]
        found[number].append(result)
        if len(found[number]) == left[number]:
            send((number, _summed(found.pop(number))))

    for number in set(range(len(texts))) - set(left):
        send((number, _summed([])))  # an empty text: probability 1, no token
    backend.score(requests, on_result)
    return sum(len(request.continuation) for request in requests)


def _summed(parts: Sequence[ScoreResult]) -> dict[str, Any]:
    finite = all(part.finite for part in parts)
    return {
        # In one order whatever the order of scoring: the sum of floats depends on it.
        "logprob": fsum(part.logprob for part in parts) if finite else None,
        "n_tokens": sum(part.n_tokens for part in parts),
        "finite": finite,
        "windows": len(parts),
    }


def kl_reference(backend: Backend, send: Send, tokens: Sequence[int], path: str) -> int:
    """Write the reference's logits over a text to a .npy file: float32, (positions, vocabulary). Returns positions."""
    done = 0
    for start, chunk in backend.logits(tokens):
        if start == 0:
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(tokens), chunk.shape[1]))
        # Mapped anew for each chunk: pages of a mapping that stays open count as this process's memory.
        np.load(path, mmap_mode="r+")[start : start + len(chunk)] = chunk
        done += len(chunk)
    if done != len(tokens):
        raise RuntimeError(f"logits of {done} positions came back; expected {len(tokens)}")
    return done


def _stored(path: str, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Some positions of the file that ``kl_reference`` wrote, and no page more in memory."""
    return np.array(np.load(path, mmap_mode="r")[start:stop])


def kl(backend: Backend, send: Send, tokens: Sequence[int], path: str, done: Sequence[str] = ()) -> int:
    """Compare this variant's logits with the reference's, chunk by chunk. Rows of kind ``kl``. Returns positions."""
    from harness.suites.fidelity import kl_payload, kl_rows

    for start, chunk in backend.logits(tokens):
        key = f"{start:06d}"
        if key not in done:
            rows = kl_rows(_stored(path, start, start + len(chunk)), chunk)
            send(row_of(key, "kl", kl_payload(start, rows)))
    return len(tokens)


def floor(backend: Backend, send: Send, tokens: Sequence[int], path: str, done: Sequence[str] = ()) -> int:
    """Compare this variant's logits of a text with its own, read one token at a time. Rows of kind ``floor``.

    The prompt path's logits lie in a file at ``path`` meanwhile, so that no more than a chunk of them and
    ``FLOOR_ROWS`` single ones are in memory. Returns positions.
    """
    from harness.suites.floor import floor_payload, floor_rows

    kl_reference(backend, send, tokens, path)
    held: list[np.ndarray[Any, Any]] = []
    for start, row in backend.logits(tokens, batch=1):
        held.append(row)
        if len(held) < FLOOR_ROWS and start + 1 < len(tokens):
            continue
        first = start + 1 - len(held)
        key = f"{first:06d}"
        if key not in done:
            rows = floor_rows(_stored(path, first, start + 1), np.concatenate(held))
            send(row_of(key, "floor", floor_payload(first, rows)))
        held = []
    return len(tokens)


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
    return row_of(probe.id, "probe", payload)
