"""Text to tokens and back, one BOS where the model wants one, and the chat template."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.backends.llama_cpp.library import library
from harness.backends.llama_cpp.speculate import Shared
from harness.errors import InputError

_ANOTHER = "draft with a model of the same family"


class Vocab:
    """Vocabulary of one loaded model."""

    def __init__(self, model: Any) -> None:
        self._low = library()
        self._model = model
        self.handle = self._low.llama_model_get_vocab(model)
        self.size = int(self._low.llama_vocab_n_tokens(self.handle))
        self.bos = int(self._low.llama_vocab_bos(self.handle))
        self.eos = int(self._low.llama_vocab_eos(self.handle))
        self.adds_bos = bool(self._low.llama_vocab_get_add_bos(self.handle)) and self.bos >= 0
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    def raw_text(self, token: int) -> str:
        """Text of a token as the vocabulary stores it."""
        found: bytes | None = self._low.llama_vocab_get_text(self.handle, token)
        return (found or b"").decode("utf-8", errors="replace")

    def entry(self, token: int) -> tuple[bytes | None, int]:
        """Text and attributes of a token as the vocabulary stores them."""
        low = self._low
        return low.llama_vocab_get_text(self.handle, token), low.llama_vocab_get_attr(self.handle, token)

    def is_end(self, token: int) -> bool:
        """Whether the token ends a generation."""
        found = self._ends.get(token)
        if found is None:
            found = self._ends[token] = bool(self._low.llama_vocab_is_eog(self.handle, token))
        return found

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Token ids; with ``bos``, exactly one BOS in front where the model wants one, however the text begins."""
        head: list[int] = []
        if bos and self.adds_bos:
            head = [self.bos]
            text = text.removeprefix(self.raw_text(self.bos))
        return head + self._plain(text, special)

    def _plain(self, text: str, special: bool) -> list[int]:
        raw = text.encode("utf-8")
        out = np.empty(len(raw) + 16, np.int32)
        pointer = out.ctypes.data_as(self._low.llama_token_p)
        n = self._low.llama_tokenize(self.handle, raw, len(raw), pointer, len(out), False, special)
        if n < 0:
            out = np.empty(-n, np.int32)
            n = self._low.llama_tokenize(
                self.handle, raw, len(raw), out.ctypes.data_as(self._low.llama_token_p), len(out), False, special
            )
        return [int(token) for token in out[:n]]

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of one token; nothing for control tokens."""
        found = self._pieces.get(token)
        if found is None:
            buffer = ctypes.create_string_buffer(64)
            n = self._low.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, False)
            if n < 0:
                buffer = ctypes.create_string_buffer(-n)
                n = self._low.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, False)
            found = self._pieces[token] = buffer.raw[:n]
        return found

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """UTF-8 bytes of the tokens; may begin or end inside a character."""
        for token in tokens:
            if not 0 <= token < self.size:
                raise InputError(f"token {token}: outside the vocabulary; expected 0 to {self.size - 1}")
        return b"".join(map(self.piece, tokens))

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template, or None."""
        found: bytes | None = self._low.llama_model_chat_template(self._model, None)
        return found.decode("utf-8") if found else None

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The template applied as transformers does it. Raises InputError where there is none or it refuses."""
        template = self.chat_template
        if template is None:
            raise InputError("chat_template: this model carries none; expected a chat model; set chat_template: false")
        special = {
            "bos_token": self.raw_text(self.bos) if self.bos >= 0 else "",
            "eos_token": self.raw_text(self.eos) if self.eos >= 0 else "",
        }
        return render_template(template, messages, special)


def render_template(template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """Render a chat template in a sandbox, with the generation prompt added.

    Raises:
        InputError: If the template is broken or rejects these messages.
    """
    import datetime

    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.datetime.now().strftime(pattern)
    try:
        return environment.from_string(template).render(messages=list(messages), add_generation_prompt=True, **special)
    except jinja2.TemplateError as error:
        raise InputError(
            f"chat template: {error}; expected messages that the model's template accepts; "
            "change them or set chat_template: false"
        ) from error


def require_same(target: Vocab, draft: Vocab, where: str) -> Shared:
    """Raise InputError unless a draft model speaks the target's vocabulary: a drafted id must mean the same text.

    One vocabulary may only be longer at its end, as models of one family are padded to different sizes; every id that
    both have is compared.
    """
    low = library()
    facts = {
        "tokenizer type": (low.llama_vocab_type(target.handle), low.llama_vocab_type(draft.handle)),
        "BOS token": (target.bos, draft.bos),
        "EOS token": (target.eos, draft.eos),
        "adding BOS": (target.adds_bos, draft.adds_bos),
    }
    for name, (expected, found) in facts.items():
        if expected != found:
            raise InputError(f"{where}: {name} is {found}; expected {expected} as in the target; {_ANOTHER}")
    size = min(target.size, draft.size)
    for token in range(size):
        expected, found = target.entry(token), draft.entry(token)
        if expected != found:
            what = "" if expected[0] != found[0] else f" with attributes {found[1]:#x}"
            wanted = "" if expected[0] != found[0] else f" with {expected[1]:#x}"
            raise InputError(
                f"{where}: token {token} is {draft.raw_text(token)!r}{what}; "
                f"expected {target.raw_text(token)!r}{wanted} as in the target; {_ANOTHER}"
            )
    return Shared(size, target.size, max(0, draft.eos))
