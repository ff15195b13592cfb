"""What an engine must be able to do. Knows no engine, no suite and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Speculate:
    """How a variant speculates.

    Attributes:
        kind: none | prompt_lookup | draft_model.
        ngram: Longest n-gram that prompt lookup matches.
        tokens: Tokens drafted per step at most.
        adapt: Whether the draft length follows acceptance, up to ``tokens``; else every draft has ``tokens``.
        draft_path: GGUF of the draft model.
        draft_digest: sha256 of that file, hex.
    """

    kind: Literal["none", "prompt_lookup", "draft_model"] = "none"
    ngram: int = 3
    tokens: int = 8
    adapt: bool = False
    draft_path: str | None = None
    draft_digest: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Everything that decides what an engine does: resolved, with no 'auto' left. Its hash is the variant's identity.

    Attributes:
        model_path, model_digest: The GGUF file and the sha256 of its bytes (the path is not part of the identity).
        weights: Label of the weight precision, e.g. "q4_0".
        kv: Precision of the key-value cache: f16 | q8_0 | q4_0 ...
        flash_attention: On or off, the same for scoring and generating.
        threads: Engine threads.
        batch, ubatch: Logical and physical batch, tokens.
        ctx: Context window, tokens.
        gpu_layers: Layers to place on a GPU.
        chat_template: Whether prompts that are chats are rendered with the model's template.
        extra: Settings of other backends.
    """

    backend: str
    model_path: str
    model_digest: str
    weights: str
    kv: str = "f16"
    flash_attention: bool = False
    threads: int = 1
    batch: int = 512
    ubatch: int = 512
    ctx: int = 4096
    gpu_layers: int = 0
    chat_template: bool = False
    speculate: Speculate = Speculate()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What was actually loaded. ``placement`` is read back from the engine, not echoed from the settings.

    ``can_roll_back``: whether the cache can be cut back to any depth; recurrent memories cannot.
    """

    engine: str
    engine_version: str
    model_name: str
    architecture: str
    n_params: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_layers: int
    weight_bytes: int
    draft_weight_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    active_bytes_per_token: int
    adds_bos: bool
    has_chat_template: bool
    threads: int
    placement: Mapping[str, Any] = field(default_factory=dict)
    can_roll_back: bool = True


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Log-likelihood of ``continuation`` after ``context``; both token ids, both non-empty."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Sum of natural-log probabilities of the continuation's tokens.

    ``finite`` is False where a logit was NaN or infinite; then ``logprob`` must not be used.
    """

    logprob: float
    is_greedy: bool
    n_tokens: int
    finite: bool = True


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One generation.

    Attributes:
        prompt: Token ids, with BOS exactly once where the model wants one.
        max_tokens: Cap on generated tokens.
        temperature: 0 is greedy.
        top_p, top_k: Sampling limits; ignored when greedy.
        seed: Of the sampler.
        stop: Texts that end the generation; the text before the first is kept.
        ignore_eos: Go on past end tokens until ``max_tokens`` (speed trials, equal length for all).
        margins: Also return the difference of the top two log-probabilities at each step (greedy only).
        speculate: Speculate where the variant does; False takes the plain loop on the same engine.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    margins: bool = False
    speculate: bool = True


@dataclass(slots=True)
class Emission:
    """Tokens that reached the host together: 1 without speculation, accepted + 1 with it."""

    tokens: list[int]
    margins: list[float] | None = None


@dataclass(slots=True)
class GenerateEnd:
    """Last value of a generation's iterator.

    Attributes:
        finish_reason: "stop" (end token or stop text) | "length" | "nonfinite".
        text: Text of all tokens emitted, cut at the stop text.
        drafted, accepted, verify_steps: Counters of speculation; None where the request was not speculated.
        drafted_at, accepted_at: Drafted and accepted tokens by their place in a draft.
        draft_s, verify_s: Seconds spent drafting and verifying; reading the prompt is in neither.
    """

    finish_reason: str
    text: str
    drafted: int | None = None
    accepted: int | None = None
    verify_steps: int | None = None
    drafted_at: list[int] | None = None
    accepted_at: list[int] | None = None
    draft_s: float | None = None
    verify_s: float | None = None


class Backend(Protocol):
    """One loaded variant. Single-threaded; lives in the worker process."""

    def load(self, spec: EngineSpec) -> BackendInfo:
        """Load the model (and the draft); after this the engine is ready. Raises InputError with the reason."""
        ...

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Token ids. ``bos`` adds BOS only where the model wants one and the text has none yet."""
        ...

    def start_token(self) -> int:
        """What stands before a text that has nothing before it: BOS, or the end token where the model knows no BOS."""
        ...

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """UTF-8 bytes of the tokens (may end inside a character)."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The model's chat template applied, generation prompt added. InputError where it has none."""
        ...

    def score(self, requests: Sequence[ScoreRequest], on_result: Callable[[int, ScoreResult], None]) -> None:
        """Score all, in any order, calling ``on_result(index, result)`` as each is known; order changes no result."""
        ...

    def score_at_depths(
        self,
        document: Sequence[int],
        probes: Sequence[tuple[int, ScoreRequest]],
        on_result: Callable[[int, ScoreResult], None],
    ) -> None:
        """Score probes that see only the first ``depth`` tokens of the document.

        ``probes[i] = (depth, request)``: the context of probe i is document[:depth] + request.context.
        The document is evaluated once; probes fork from its cache.
        """
        ...

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        """Stream emissions as soon as their tokens are on the host; the last value is a GenerateEnd.

        Each call starts from an empty cache: nothing of an earlier request is reused.
        """
        ...

    def logits(
        self, tokens: Sequence[int], *, batch: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Logits over the full vocabulary at every position, in chunks ``(first position, array (m, n_vocab))``.

        ``batch`` limits how many tokens are read at once (noise floor). Memory stays bounded: a chunk is short.
        """
        ...

    def margins(self, prompt: Sequence[int], output: Sequence[int], *, batch: int) -> list[float | None]:
        """How far the engine puts each token of ``output`` ahead of its best rival, given all tokens before it.

        The prompt is read as a generation reads it, the output ``batch`` tokens at a time (1: as plain decoding does;
        more: as a verification does). Log-probability of the token minus the largest other; negative where another
        token is ahead, None where the logits are not finite. No more than ``batch`` rows of logits are held.
        """
        ...

    def deepen(self, tokens: Sequence[int], depths: Sequence[int], n_tokens: int) -> Iterator[Emission]:
        """Greedy tokens after each depth of one context that grows from empty; never speculates.

        Reads ``tokens`` up to the first depth, streams ``n_tokens`` single tokens past any end token, forgets them, and
        goes on reading where it was, up to the next depth. So the time from the start, or from the last token of one
        depth, to the first token of the next is the time of reading what lies between. Each emission is yielded as soon
        as its token is on the host. Only for engines with ``can_roll_back``.

        Args:
            tokens: The text, with BOS where the model wants one.
            depths: Ascending, none beyond the text's end.
            n_tokens: At each depth.
        """
        ...

    def close(self) -> None:
        """Free the engine."""
        ...
