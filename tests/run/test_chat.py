"""The chat template: applied where asked for, exactly one BOS, the same for MMLU, code and greedy prompts."""

from __future__ import annotations

from typing import Any

import pytest

from harness.backends.base import EngineSpec
from harness.backends.fake import BOS, FakeBackend
from harness.errors import InputError
from harness.run import tasks
from harness.suites.lm_eval import build_mmlu, run_mmlu
from harness.suites.mmlu import MmluData, load_mmlu


def fake(**extra: Any) -> FakeBackend:
    backend = FakeBackend()
    backend.load(EngineSpec("fake", "none", "0", "f16", ctx=2048, extra=extra))
    return backend


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("chat", [True, False])
def test_there_is_one_bos_where_the_model_wants_one(add_bos: bool, chat: bool) -> None:
    tokens = tasks.asked(fake(add_bos=add_bos), "Hi", chat)
    # The fake's template writes a BOS of its own, as many real ones do.
    assert tokens.count(BOS) == (1 if add_bos or chat else 0)
    if add_bos:
        assert tokens[0] == BOS


def test_a_chat_prompt_holds_the_message_and_opens_the_answer() -> None:
    backend = fake()
    text = backend.detokenize(tasks.asked(backend, "Hi", True)).decode()
    assert "[user]Hi" in text and text.endswith("[assistant]")


def test_code_asked_in_a_chat_is_taken_out_of_its_fence() -> None:
    from harness.suites.code_syntax import prompts, verdict

    first = prompts(1)[0]
    backend = fake(script=f"Sure:\n```{first.language}\n{first.text}\n    return 1\n```\n")
    rows: list[dict[str, Any]] = []
    tasks.programs(backend, rows.append, 1, 400, chat=True)
    payload = rows[0]["payload"]
    assert payload["output"].startswith("Sure:")
    assert verdict(first, payload["output"], payload["finish_reason"]).status == "parsed"


def test_a_template_that_the_model_lacks_is_refused_before_anything_runs(project: Any) -> None:
    with pytest.raises(InputError, match=r"settings\.chat_template: true, but .*model\.gguf carries none"):
        project.prepare(", chat_template: true", "matrix: {weights: [f16]}")


def test_mmlu_is_rendered_and_the_option_follows_without_a_space() -> None:
    from harness.suites.data import suite_file

    parts, _ = load_mmlu(MmluData("sample", str(suite_file("mmlu/sample.jsonl")), "sample"))
    tasks_by_subject = build_mmlu({"anatomy": parts["anatomy"]}, "letters", 0)
    seen: list[tuple[str, str]] = []

    def score(pairs: Any, on_result: Any) -> None:
        seen.extend(pairs)
        for index in range(len(pairs)):
            on_result(index, {"logprob": -1.0 - index, "is_greedy": False, "n_tokens": 1, "finite": True})

    run_mmlu(tasks_by_subject, {"anatomy": [0]}, {}, score, lambda *_: None, fake().render_chat)
    assert all(context.startswith("<s>[") and context.endswith("[assistant]") for context, _ in seen)
    assert [option for _, option in seen] == ["A", "B", "C", "D"]
