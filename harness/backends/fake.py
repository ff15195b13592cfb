"""A scripted engine without a model file: for tests and dry runs. Deterministic; knows no clock.

Its language model looks at the last two tokens only, so every result can be worked out by hand. Settings
(``EngineSpec.extra``): ``pieces`` further vocabulary entries, ``add_bos`` whether the model wants a BOS (true),
``template`` whether it has a chat template (true), ``script`` a text that every generation continues with,
``nonfinite`` a text whose presence at the end of the context makes the logits NaN, ``rounding`` how much the logits of
several tokens at once (a verification, a prompt) differ from single ones, ``lossy`` the number of a token at which
speculation takes the second best, ``recurrent`` whether its cache claims that it cannot be cut back (false).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite

import numpy as np
import numpy.typing as npt

from harness.backends.base import (
    BackendInfo,
    Emission,
    EngineSpec,
    GenerateEnd,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
)
from harness.errors import InputError

BOS, EOS = 0, 1
BOS_TEXT, EOS_TEXT = "<s>", "</s>"
_WORDS = (
    " the",
    " a",
    " is",
    " of",
    " A",
    " B",
    " C",
    " D",
    "Answer",
    "Question",
    "def ",
    "return ",
    "    ",
    " fox",
    " 1",
    " 2",
    ": ",
)
_BITS = {"f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q4_k_m": 4.9, "q4_0": 4.5, "q2_k": 3.2}


class FakeBackend:
    """Bytes and a few words as vocabulary; the longest entry wins, as in a real tokenizer."""

    def __init__(self, logits: Callable[[Sequence[int]], npt.NDArray[np.float32]] | None = None) -> None:
        """Args: logits: another language model, from all tokens so far to logits of shape (n_vocab,)."""
        self._given = logits

    def load(self, spec: EngineSpec) -> BackendInfo:
        """Take the settings; nothing is read."""
        if spec.weights not in _BITS:
            raise InputError(f"weights: the fake engine has no {spec.weights!r}; known: {', '.join(sorted(_BITS))}")
        self._spec = spec
        words = dict.fromkeys([*_WORDS, *spec.extra.get("pieces", ())])
        self._pieces = [b"", b"", *(bytes([i]) for i in range(256)), *(word.encode() for word in words)]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if piece}
        self._longest = max(map(len, self._pieces))
        self._add_bos = bool(spec.extra.get("add_bos", True))
        self._noise = (16.0 / _BITS[spec.weights] - 1.0) * 0.2
        draft = spec.speculate.kind == "draft_model"
        weight_bytes = int(1_000_000 * _BITS[spec.weights])
        return BackendInfo(
            engine="fake",
            engine_version="1",
            model_name="fake",
            architecture="bigram",
            n_params=8_000_000,
            n_vocab=len(self._pieces),
            n_ctx=spec.ctx,
            n_ctx_train=spec.ctx,
            n_layers=1,
            weight_bytes=weight_bytes,
            draft_weight_bytes=4_500_000 if draft else 0,
            kv_bytes=64 * spec.ctx,
            kv_bytes_per_token=64,
            active_bytes_per_token=weight_bytes,
            adds_bos=self._add_bos,
            has_chat_template=bool(spec.extra.get("template", True)),
            threads=spec.threads,
            placement={"gpu_layers": 0},
            can_roll_back=not spec.extra.get("recurrent", False),
        )

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Longest match from the left; one BOS in front where the model wants one."""
        head: list[int] = []
        if bos and self._add_bos:
            head, text = [BOS], text.removeprefix(BOS_TEXT)
        marks = {BOS_TEXT.encode(): BOS, EOS_TEXT.encode(): EOS} if special else {}
        raw, at = text.encode(), 0
        while at < len(raw):
            mark = next((mark for mark in marks if raw.startswith(mark, at)), None)
            if mark:
                head.append(marks[mark])
                at += len(mark)
                continue
            n = next(n for n in range(min(self._longest, len(raw) - at), 0, -1) if raw[at : at + n] in self._ids)
            head.append(self._ids[raw[at : at + n]])
            at += n
        return head

    def start_token(self) -> int:
        """BOS."""
        return BOS

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes of the tokens; nothing for BOS and EOS."""
        return b"".join(self._pieces[token] for token in tokens)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A plain template that begins with BOS, as many real ones do."""
        if not self._spec.extra.get("template", True):
            raise InputError("chat_template: this model carries none; expected a chat model; set chat_template: false")
        turns = "".join(f"[{message['role']}]{message['content']}{EOS_TEXT}" for message in messages)
        return f"{BOS_TEXT}{turns}[assistant]"

    def _row(self, tokens: Sequence[int], verifying: bool = False) -> npt.NDArray[np.float32]:
        """Logits after the tokens: hashed from the last two, disturbed more as the weights get fewer bits."""
        if self._given is not None:
            return self._given(tokens)
        poison = self._spec.extra.get("nonfinite")
        if poison and self.detokenize(tokens).endswith(poison.encode()):
            return np.full(len(self._pieces), np.nan, np.float32)
        row = self._hashed(f"model {list(tokens[-2:])}") + self._noise * self._hashed(
            f"{self._spec.weights} {list(tokens[-2:])}"
        )
        if verifying and (rounding := self._spec.extra.get("rounding", 0.0)):
            row += rounding * self._hashed(f"verified {list(tokens[-2:])}")
        return row.astype(np.float32)

    def _hashed(self, key: str) -> npt.NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).normal(0.0, 2.0, len(self._pieces))

    def score(self, requests: Sequence[ScoreRequest], on_result: Callable[[int, ScoreResult], None]) -> None:
        """Score all, each alone."""
        for i, request in enumerate(requests):
            if not request.context or not request.continuation:
                raise InputError(f"request {i}: expected a context and a continuation, both non-empty")
            if len(request.context) + len(request.continuation) > self._spec.ctx:
                n = len(request.context) + len(request.continuation)
                raise InputError(
                    f"request {i}: {n} tokens; the context holds {self._spec.ctx}; raise ctx or shorten it"
                )
        for i, request in enumerate(requests):
            on_result(i, self._scored(request))

    def _scored(self, request: ScoreRequest) -> ScoreResult:
        tokens, total, is_greedy = list(request.context), 0.0, True
        for token in request.continuation:
            row = self._row(tokens).astype(np.float64)
            total += float(row[token] - row.max() - np.log(np.exp(row - row.max()).sum()))
            is_greedy &= token == int(row.argmax())
            tokens.append(token)
        n = len(request.continuation)
        return ScoreResult(total, is_greedy, n) if isfinite(total) else ScoreResult(0.0, False, n, finite=False)

    def score_at_depths(
        self,
        document: Sequence[int],
        probes: Sequence[tuple[int, ScoreRequest]],
        on_result: Callable[[int, ScoreResult], None],
    ) -> None:
        """Score probes after document[:depth]."""
        for i, (depth, _) in enumerate(probes):
            if not 0 <= depth <= len(document):
                raise InputError(f"probe {i}: depth {depth}; the document has {len(document)} tokens")
        self.score(
            [ScoreRequest((*document[:depth], *probe.context), probe.continuation) for depth, probe in probes],
            on_result,
        )

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        """The script, or what the language model gives; bursts of 1, 3 and 2 tokens where the variant speculates."""
        n = len(request.prompt) + request.max_tokens
        if not request.prompt or n > self._spec.ctx:
            raise InputError(
                f"prompt + max_tokens = {n} tokens; expected a prompt, and at most {self._spec.ctx} in all"
            )
        return self._generate(request)

    def _generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        how = self._spec.speculate
        speculates = how.kind != "none" and request.speculate
        drafted_at, accepted_at, steps = [0] * how.tokens, [0] * how.tokens, 0
        tokens, reason = self._tokens(request, speculates)
        at, burst = 0, 1
        while at < len(tokens):
            part = tokens[at : at + min(burst, how.tokens + 1)]
            yield Emission([token for token, _ in part], [margin for _, margin in part] if request.margins else None)
            if speculates and at:
                drafted_at = [n + 1 for n in drafted_at]
                accepted_at = [n + (place < len(part) - 1) for place, n in enumerate(accepted_at)]
                steps += 1
            at += len(part)
            burst = {1: 3, 3: 2, 2: 1}[burst] if speculates else 1
        text = self.detokenize([token for token, _ in tokens]).decode(errors="replace")
        text = text[: min((text.find(stop) for stop in request.stop if stop in text), default=len(text))]
        if speculates:
            drafted, accepted = sum(drafted_at), sum(accepted_at)
            yield GenerateEnd(
                reason, text, drafted, accepted, steps, drafted_at, accepted_at, 1e-3 * steps, 3e-3 * steps
            )
        else:
            yield GenerateEnd(reason, text)

    def _tokens(self, request: GenerateRequest, speculates: bool) -> tuple[list[tuple[int, float]], str]:
        """Tokens with their margins, and why they end."""
        script = [*self.tokenize(self._spec.extra["script"]), EOS] if "script" in self._spec.extra else None
        seen, out, rng = list(request.prompt), list[tuple[int, float]](), np.random.default_rng(request.seed)
        while len(out) < request.max_tokens:
            row = self._row(seen, verifying=speculates and bool(out))
            if not np.isfinite(row.max()):
                return out, "nonfinite"
            best = np.sort(row)[-2:]
            if script is not None:
                token = script[len(out) % len(script)]
            elif request.temperature > 0:
                p = np.exp((row - row.max()).astype(np.float64) / request.temperature)
                token = int(rng.choice(len(p), p=p / p.sum()))
            else:
                token = int(row.argmax())
            if speculates and len(out) == self._spec.extra.get("lossy"):
                token = int(row.argsort()[-2])
            if token == EOS and not request.ignore_eos:
                return out, "stop"
            out.append((token, float(best[1] - best[0])))
            seen.append(token)
            if request.stop and any(stop.encode() in self.detokenize([t for t, _ in out]) for stop in request.stop):
                return out, "stop"
        return out, "length"

    def logits(
        self, tokens: Sequence[int], *, batch: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Logits at every position, in chunks."""
        if not 0 < len(tokens) <= self._spec.ctx:
            raise InputError(f"logits of {len(tokens)} tokens; expected 1 to {self._spec.ctx}, the context size")
        step = batch or self._spec.ubatch
        for start in range(0, len(tokens), step):
            stop = min(start + step, len(tokens))
            yield start, np.stack([self._row(tokens[: i + 1], verifying=step > 1) for i in range(start, stop)])

    def margins(self, prompt: Sequence[int], output: Sequence[int], *, batch: int) -> list[float | None]:
        """How far each token of the output is ahead of its best rival."""
        found: list[float | None] = []
        for i, token in enumerate(output):
            row = self._row([*prompt, *output[:i]], verifying=batch > 1 and i > 0)
            lead = float(row[token] - np.delete(row, token).max())
            found.append(lead if isfinite(lead) else None)
        return found

    def deepen(self, tokens: Sequence[int], depths: Sequence[int], n_tokens: int) -> Iterator[Emission]:
        """Greedy tokens after each depth."""
        if depths[-1] + n_tokens > self._spec.ctx:
            raise InputError(f"depth {depths[-1]} + {n_tokens} tokens; the context holds {self._spec.ctx}")
        for depth in depths:
            seen = list(tokens[:depth])
            for _ in range(n_tokens):
                seen.append(int(self._row(seen).argmax()))
                yield Emission(seen[-1:])

    def close(self) -> None:
        """Nothing to free."""
