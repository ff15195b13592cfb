"""The llama.cpp backend: one loaded variant behind the ``Backend`` protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

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
from harness.backends.llama_cpp import deepen, generate, score, score_plan
from harness.backends.llama_cpp.draft import Drafter, LookupDrafter, ModelDrafter
from harness.backends.llama_cpp.library import Context
from harness.backends.llama_cpp.load import Model, check, describe, new_context, open_model
from harness.backends.llama_cpp.vocab import Vocab, require_same
from harness.errors import InputError

T = TypeVar("T")


class LlamaCppBackend:
    """One model file with its contexts: one to generate, one to score (made on first use), one for a draft."""

    def __init__(self) -> None:
        self._models: list[Model] = []
        self._contexts: list[Context] = []
        self._scorer: score.Scorer | None = None
        self._drafter: Drafter | None = None
        self._request: object = None  # whose tokens are in the contexts

    def load(self, spec: EngineSpec) -> BackendInfo:
        """Load the model, the draft where there is one, and the generating context."""
        self.close()
        check(spec)
        try:
            return self._load(spec)
        except BaseException:
            self.close()
            raise

    def _load(self, spec: EngineSpec) -> BackendInfo:
        self._spec = spec
        self._model = open_model(spec.model_path, spec.gpu_layers)
        self._models.append(self._model)
        drafts = spec.speculate.tokens if spec.speculate.kind != "none" else 0
        if drafts and not self._model.can_roll_back:
            raise InputError(
                f"speculate: {self._model.header.architecture} keeps a recurrent state, which cannot be rolled back; "
                "set speculate: none"
            )
        self._generating = self._context(self._model, outputs=drafts + 1)
        draft = self._load_draft(spec) if spec.speculate.kind == "draft_model" else None
        if spec.speculate.kind == "prompt_lookup":
            self._drafter = LookupDrafter(spec.speculate.ngram, drafts)
        return describe(spec, self._model, draft, self._generating)

    def _load_draft(self, spec: EngineSpec) -> Model:
        if not spec.speculate.draft_path:
            raise InputError("speculate.draft_path: none; a draft model needs its GGUF file")
        draft = open_model(spec.speculate.draft_path, spec.gpu_layers)
        self._models.append(draft)
        shared = require_same(self._model.vocab, draft.vocab, f"draft {spec.speculate.draft_path}")
        if not draft.can_roll_back:
            raise InputError(
                f"speculate: the draft's {draft.header.architecture} keeps a recurrent state, "
                "which cannot be rolled back; use another draft"
            )
        self._drafter = ModelDrafter(self._context(draft, outputs=1), spec.speculate.tokens, shared)
        return draft

    def _context(self, model: Model, *, outputs: int = 0, n_seq: int = 1, n_ctx: int | None = None) -> Context:
        context = new_context(model, self._spec, n_ctx=n_ctx or self._spec.ctx, n_seq=n_seq, outputs=outputs)
        self._contexts.append(context)
        return context

    @property
    def _vocab(self) -> Vocab:
        if not self._models:
            raise RuntimeError("load() comes first")
        return self._model.vocab

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Token ids; see ``Vocab.tokenize``."""
        return self._vocab.tokenize(text, special=special, bos=bos)

    def start_token(self) -> int:
        """BOS, or the end token where the model knows no BOS."""
        return self._vocab.bos if self._vocab.bos >= 0 else self._vocab.eos

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """UTF-8 bytes of the tokens."""
        return self._vocab.detokenize(tokens)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The model's chat template applied."""
        return self._vocab.render_chat(messages)

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        """Stream emissions; the last value is a GenerateEnd. Faults of the request are raised at once."""
        vocab = self._vocab
        generate.check(request, vocab, self._spec.ctx)
        if self._drafter is None or not request.speculate:
            stream = generate.generate_plain(self._generating, vocab, request)
        else:
            stream = generate.generate_speculative(
                self._generating, vocab, request, self._drafter, adapt=self._spec.speculate.adapt
            )
        return self._guarded(stream)

    def _guarded(self, stream: Iterator[T]) -> Iterator[T]:
        """Refuse to go on once another request has taken the caches."""
        mine = self._request = object()
        for value in stream:
            yield value
            if self._request is not mine:
                raise RuntimeError("another request was started on this engine; finish one before the next")

    def _scoring(self, longest: int) -> score.Scorer:
        """The scoring context, made on first use, and made anew where ``longest`` tokens do not fit.

        It has a batch of cells to spare, so that branches fit beside the longest context.
        """
        step = min(self._spec.batch, self._spec.ubatch)
        cells = score_plan.cells(longest, self._spec.ctx, step)
        if self._scorer is not None and self._scorer.cells < cells:
            self._contexts.remove(self._scorer.context)
            self._scorer.context.close()
            self._scorer = None
        if self._scorer is None:
            context = self._context(self._model, n_seq=score.SEQUENCES, n_ctx=cells)
            self._scorer = score.Scorer(
                context, step, can_roll_back=self._model.can_roll_back, together=self._spec.gpu_layers > 0
            )
        return self._scorer

    def _score(
        self, groups: Iterator[score_plan.Group], longest: int, on_result: Callable[[int, ScoreResult], None]
    ) -> None:
        self._request = object()
        if longest:
            self._scoring(longest).run(groups, on_result)

    def score(self, requests: Sequence[ScoreRequest], on_result: Callable[[int, ScoreResult], None]) -> None:
        """Score all; see ``harness.backends.llama_cpp.score``."""
        longest = score_plan.check([(0, request) for request in requests], self._spec.ctx, self._vocab.size)
        self._score(score_plan.groups_of(requests), longest, on_result)

    def score_at_depths(
        self,
        document: Sequence[int],
        probes: Sequence[tuple[int, ScoreRequest]],
        on_result: Callable[[int, ScoreResult], None],
    ) -> None:
        """Score probes that see only the first ``depth`` tokens of the document, which is evaluated once."""
        for i, (depth, _) in enumerate(probes):
            if not 0 <= depth <= len(document):
                raise InputError(f"probe {i}: depth {depth}; the document has {len(document)} tokens")
        longest = score_plan.check(probes, self._spec.ctx, self._vocab.size)
        self._score(score_plan.groups_at_depths(document, probes), longest, on_result)

    def logits(
        self, tokens: Sequence[int], *, batch: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Logits at every position, read at most ``batch`` (or ubatch) at a time; chunks are copies, and shorter."""
        if not tokens or len(tokens) > self._spec.ctx:
            raise InputError(f"logits of {len(tokens)} tokens; expected 1 to {self._spec.ctx}, the context size")
        if batch is not None and batch < 1:
            raise InputError(f"batch: {batch}; expected at least 1")
        step = min(self._spec.batch, self._spec.ubatch, batch or len(tokens))
        return self._guarded(self._logits(np.asarray(tokens, np.int32), step))

    def _logits(self, tokens: score_plan.Tokens, step: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Takes the scoring context when it is asked for the first chunk: until then others may replace it."""
        yield from self._scoring(len(tokens)).logits(tokens, step)

    def margins(self, prompt: Sequence[int], output: Sequence[int], *, batch: int) -> list[float | None]:
        """How far each token of the output is ahead of its best rival, on the context that generates."""
        generate.check(GenerateRequest(tuple(prompt), len(output)), self._vocab, self._spec.ctx)
        most = self._spec.speculate.tokens + 1 if self._drafter else 1
        if not 1 <= batch <= most:
            raise InputError(f"batch: {batch}; expected 1 to {most}, the tokens that this variant evaluates at once")
        self._request = object()
        return generate.margins(self._generating, prompt, output, batch)

    def deepen(self, tokens: Sequence[int], depths: Sequence[int], n_tokens: int) -> Iterator[Emission]:
        """Greedy tokens at each depth of one growing context, the one that generates; without speculation."""
        deepen.check(tokens, depths, n_tokens, self._spec.ctx)
        if not self._model.can_roll_back:
            raise InputError(f"{self._model.header.architecture} keeps a recurrent state, which cannot be cut back")
        return self._guarded(deepen.deepen(self._generating, tokens, depths, n_tokens))

    def close(self) -> None:
        """Free contexts, then models."""
        for context in self._contexts:
            context.close()
        for model in self._models:
            model.close()
        self._contexts, self._models, self._scorer, self._drafter = [], [], None, None
