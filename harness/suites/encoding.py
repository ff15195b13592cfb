"""How text becomes the token ids that are scored. Pure; knows tokenizers only as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

Tokenize = Callable[[str], Sequence[int]]


def encode_pair(
    tokenize: Tokenize, context: str, continuation: str, prefix: int | None = None
) -> tuple[list[int], list[int]]:
    """Token ids of a context and of the continuation that follows it, encoded as one text.

    White space at the context's end is moved to the continuation. Both are encoded jointly; the continuation
    starts where the joint encoding leaves that of the context alone, so that a merge across the join belongs to
    the continuation and the continuation is never empty. Where there is no such merge this equals lm-eval's rule
    (``TemplateLM._encode_pair``).

    Args:
        tokenize: Text to ids, with BOS where the model wants one.
        context: May be empty if ``prefix`` is given or the tokenizer adds BOS.
        continuation: Not empty.
        prefix: Token that stands in for an empty context (BOS or an end token).

    Returns:
        ``(context ids, continuation ids)``, both non-empty.

    Raises:
        ValueError: If nothing is left to score, or nothing to score it after.
    """
    stripped = context.rstrip()
    continuation = context[len(stripped) :] + continuation
    whole = list(tokenize(stripped + continuation))
    head = list(tokenize(stripped)) if stripped else []
    cut = 0
    while cut < min(len(head), len(whole) - 1) and head[cut] == whole[cut]:
        cut += 1
    if not stripped:
        bos = list(tokenize(""))
        cut = len(bos) if bos and whole[: len(bos)] == bos and len(whole) > len(bos) else 0
    if cut == 0 and prefix is not None:
        whole, cut = [prefix, *whole], 1
    if cut == 0 or cut >= len(whole):
        raise ValueError(f"nothing to score: context {context!r}, continuation {continuation!r}")
    return whole[:cut], whole[cut:]


def windows(tokens: Sequence[int], room: int) -> Iterator[tuple[list[int], list[int]]]:
    """Contexts and continuations that together score every token but the first exactly once, as lm-eval cuts them.

    Each window holds ``room`` tokens at most. The first begins with the text; the last ends with it and takes the
    tokens before its own as context, so that all but a short text's windows are full.

    Args:
        tokens: A text's, after the token that stands in front of it. Shape (n,).
        room: At least 2.

    >>> list(windows([0, 1, 2, 3, 4, 5], 4))
    [([0], [1, 2, 3]), ([2, 3], [4, 5])]
    """
    done, step = 1, room - 1
    while done < len(tokens):
        end = min(done + step, len(tokens))
        start = max(0, end - room)
        yield list(tokens[start:done]), list(tokens[done:end])
        done = end
