"""Prompts of the speed suite and the order of its trials. No clock, no engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from harness.errors import InputError
from harness.suites.data import suite_yaml
from harness.suites.fidelity import text as natural_text
from harness.suites.long_context.text import Kind, generate

Tokens = tuple[int, ...]
# An adjective and a noun are over within so many tokens, however finely a tokenizer splits words.
OPENING_TOKENS = 24


def prompts(lengths: Sequence[int], seed: int, tokenize: Callable[[str], list[int]]) -> list[Tokens]:
    """Prompts of exactly the lengths asked for, no two with a common beginning.

    After the BOS token, if there is one, the very first token is new in every prompt while the pool of opening words
    lasts (about 80 prompts); later ones differ within the first three, and where a tokenizer splits words so that
    these run out, within the opening sentence.

    Args:
        lengths: Tokens of each prompt, BOS included; each at least 4.
        seed: Of everything.
        tokenize: Token ids of a text, with BOS where the model wants one.

    Raises:
        InputError: If a length is below 4, or there are not enough different openings.
    """
    if min(lengths, default=4) < 4:
        raise InputError(f"speed: prompt_tokens {min(lengths)}: too short; expected at least 4")
    openings = _openings(random.Random(f"speed:{seed}"), tokenize)
    return [_prompt(next(openings), length, place, seed, tokenize) for place, length in enumerate(lengths)]


def palindrome(names: Sequence[str], seed: int, number: int) -> tuple[str, ...]:
    """The order of variants in a round: A B C ... C B A, drawn anew for each number.

    A drift that is linear in time falls on every variant alike: the two turns of each lie around the same middle.

    >>> order = palindrome(["a", "b", "c"], 0, 7)
    >>> order == order[::-1], sorted(order)
    (True, ['a', 'a', 'b', 'b', 'c', 'c'])
    """
    order = random.Random(f"round:{seed}:{number}").sample(list(names), len(names))
    return (*order, *reversed(order))


def _openings(rng: random.Random, tokenize: Callable[[str], list[int]]) -> Iterator[str]:
    """First sentences: each adjective once, by its own first token; then pairs that differ within ever more tokens."""
    data = suite_yaml("speed")
    adjectives = rng.sample(data["adjectives"], len(data["adjectives"]))
    nouns = rng.sample(data["nouns"], len(data["nouns"]))
    bos = len(tokenize(""))
    seen: set[Tokens] = set()
    for most, of in ((1, nouns[:1]), (3, nouns), (OPENING_TOKENS, nouns)):
        for noun, adjective in product(of, adjectives):
            opening = f"{adjective} {noun} were on the list of that day. "
            starts = {width: tuple(tokenize(opening)[bos : bos + width]) for width in (1, 3, OPENING_TOKENS)}
            if starts[most] not in seen:
                seen |= set(starts.values())
                yield opening
    raise InputError("speed: no more openings that differ; ask for fewer rounds or prompt lengths")


def _prompt(opening: str, length: int, index: int, seed: int, tokenize: Callable[[str], list[int]]) -> Tokens:
    """The opening, then varied prose from a place of its own in the built-in text; generated prose where that ends.

    Generated prose alone repeats its turns of phrase, and speculation would profit from them as from no real text.
    """
    paragraphs = natural_text().split("\n\n")
    order = random.Random(f"speed-text:{seed}").sample(range(len(paragraphs)), len(paragraphs))
    first = order[index % len(order)]
    body = "\n\n".join([*paragraphs[first:], *paragraphs[:first]])
    tokens = tokenize(f"{opening}{body}")
    if len(tokens) < length:
        kind: Kind = "story" if index % 2 == 0 else "document"
        more = generate(kind, seed * 100_003 + index, length, lambda piece: len(tokenize(piece)), ())
        tokens = tokenize(f"{opening}{body}\n\n{more.text}")
    if len(tokens) < length:
        raise InputError(f"speed: the tokenizer gave {len(tokens)} tokens where {length} were expected")
    return tuple(tokens[:length])
