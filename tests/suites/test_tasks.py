"""lm-eval's tasks through our answerers: its prompts, its judgements, rows that resume, faults that are said."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import CellError, InputError
from harness.suites.ask import Answerers, run_task
from harness.suites.mmlu import folder_in
from harness.suites.tasks import Loaded, digest_of, expanded, load_tasks, manager, read_mmlu_from

from .lm_eval_tasks import write_tasks

Rows = dict[str, tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def index(folder: Path) -> Any:
    return manager(str(folder))


class Engine:
    """Answers by rule and remembers what it was asked."""

    def __init__(self, logprob: Callable[[str], float | None] = lambda text: -float(len(text)), text: str = "") -> None:
        self.asked: list[Any] = []
        self._logprob, self._text = logprob, text

    def _score(self, given: Sequence[Any], on_response: Callable[[int, Mapping[str, Any]], None]) -> None:
        self.asked += given
        for index, one in reversed(list(enumerate(given))):
            value = self._logprob(one if isinstance(one, str) else one[1])
            finite = value is not None
            row = {"logprob": value, "is_greedy": False, "n_tokens": 1, "finite": finite, "cut": 0}
            on_response(index, row)

    def _write(self, given: Sequence[Any], on_response: Callable[[int, Mapping[str, Any]], None]) -> None:
        self.asked += given
        for index, _ in enumerate(given):
            row = {"text": self._text, "finish_reason": "stop", "n_tokens": 1, "cut": 0, "finite": True}
            on_response(index, row)

    @property
    def answerers(self) -> Answerers:
        return Answerers(self._score, self._score, self._write)


def run(loaded: Loaded, engine: Engine, stored: Mapping[str, Any] | None = None) -> Rows:
    rows: Rows = {}

    def keep(key: str, kind: str, payload: dict[str, Any]) -> None:
        assert key not in rows
        rows[key] = (kind, payload)

    run_task(loaded, stored or {}, engine.answerers, keep)
    return rows


def one(index: Any, name: str, limit: int | None = None, shots: int | None = None) -> Loaded:
    (loaded,) = load_tasks(index, name, limit, shots, 0)
    return loaded


def test_choices_are_asked_and_judged_as_lm_eval_does(index: Any) -> None:
    loaded = one(index, "own_choice")
    engine = Engine()
    rows = run(loaded, engine)
    assert len(engine.asked) == 8 * 4
    assert ("The thing 0 is red\n\nThe thing 3 is", " green") in [
        (context.replace("  ", " "), continuation.replace("  ", " ")) for context, continuation in engine.asked
    ]
    kinds = [kind for kind, _ in rows.values()]
    assert (kinds.count("answer"), kinds.count("judged"), kinds.count("task")) == (8, 8, 1)
    # Shorter is more probable here: red wins, right for documents 0 and 4 of 8.
    judged = [payload for kind, payload in rows.values() if kind == "judged"]
    assert [row["values"]["acc,none"] for row in judged] == [1.0, 0, 0, 0, 1.0, 0, 0, 0]
    total = rows["own_choice"][1]
    assert {m["key"]: m["value"] for m in total["metrics"]}["acc,none"] == 0.25
    assert (total["shots"], total["n"], total["of"], total["options"]) == (1, 8, 8, pytest.approx(4.0))
    assert total["metrics"][0]["aggregation"] == "mean" and total["metrics"][0]["higher_is_better"] is True


def test_a_text_is_judged_by_its_words_and_bytes(index: Any) -> None:
    rows = run(one(index, "own_text", 2), Engine(lambda text: -6.0))
    judged = [payload for kind, payload in rows.values() if kind == "judged"]
    assert [row["values"]["word_perplexity,none"] for row in judged] == [[-6.0, 4], [-6.0, 4]]
    metrics = {metric["key"]: metric for metric in rows["own_text"][1]["metrics"]}
    assert metrics["word_perplexity,none"]["value"] == pytest.approx(4.4816890703)  # exp(6 / 4)
    assert metrics["word_perplexity,none"]["aggregation"] == "weighted_perplexity"
    assert metrics["bits_per_byte,none"]["aggregation"] == "bits_per_byte"


def test_an_answer_in_free_text_is_judged_and_its_settings_reach_the_engine(index: Any) -> None:
    engine = Engine(text="thing 2")
    rows = run(one(index, "own_answer"), engine)
    prompt, settings = engine.asked[0]
    assert prompt == "Say thing 0:"
    assert settings == {"max_tokens": 4, "stop": ["."], "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}
    values = [payload["values"]["exact_match,none"] for kind, payload in rows.values() if kind == "judged"]
    assert values == [0, 0, 1, 0, 0, 0, 0, 0]


def test_stored_answers_are_not_asked_again(index: Any) -> None:
    loaded = one(index, "own_choice")
    first = run(loaded, Engine())
    stored = {key: payload for key, (kind, payload) in first.items() if kind == "answer" and not key.endswith("00003")}
    engine = Engine()
    again = run(loaded, engine, stored)
    assert len(engine.asked) == 4 and sum(kind == "answer" for kind, _ in again.values()) == 1
    assert [row for kind, row in first.values() if kind == "judged"] == [
        row for kind, row in again.values() if kind == "judged"
    ]


def test_a_limit_draws_the_same_documents_and_shots_change_the_prompt(index: Any) -> None:
    few, more = one(index, "own_choice", 3), one(index, "own_choice", 5)
    assert set(few.chosen) < set(more.chosen)
    engine = Engine()
    run(one(index, "own_choice", 3, shots=0), engine)
    assert all(not context.startswith("The thing 0 is red") for context, _ in engine.asked)
    assert len({digest_of([one(index, "own_choice", 3, shots)]) for shots in (0, 1)}) == 2


def test_a_definition_that_changes_is_another_task(index: Any, tmp_path: Path) -> None:
    other = manager(str(write_tasks(tmp_path, doc_to_text="A {{thing}} is")), ["own_text"])
    assert digest_of([one(index, "own_text")]) != digest_of([one(other, "own_text")])


def test_a_document_with_an_infinite_score_is_marked(index: Any) -> None:
    rows = run(one(index, "own_choice"), Engine(lambda text: None if text.endswith("blue") else -1.0 * len(text)))
    assert [payload["finite"] for kind, payload in rows.values() if kind == "judged"] == [False] * 8


def test_an_engine_that_tells_nothing_is_refused(index: Any) -> None:
    with pytest.raises(CellError, match="all options of all 8 questions score the same"):
        run(one(index, "own_choice"), Engine(lambda text: 0.0))


def test_an_unknown_task_is_named_with_its_likeliest_neighbour(index: Any) -> None:
    with pytest.raises(InputError, match=r"no task 'own_choise' in lm-eval.*own_choice"):
        load_tasks(index, "own_choise", None, None, 0)


def test_data_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    data = {"data_files": {"test": str(tmp_path / "none.jsonl")}}
    broken = manager(str(write_tasks(tmp_path, dataset_kwargs=data)), ["own_text"])
    with pytest.raises(InputError, match="task 'own_text': its data cannot be loaded"):
        load_tasks(broken, "own_text", None, None, 0)


def test_code_that_would_run_here_is_refused(tmp_path: Path) -> None:
    unsafe = manager(str(write_tasks(tmp_path, unsafe_code=True)), ["own_answer"])
    with pytest.raises(InputError, match="runs code that the model writes"):
        load_tasks(unsafe, "own_answer", None, None, 0)


def test_a_set_names_tasks_that_lm_eval_has(index: Any) -> None:
    assert set(expanded("small-model")) <= set(index.all_tasks)
    assert expanded("gsm8k") == ("gsm8k",)


@pytest.mark.skipif("HARNESS_DATA" not in os.environ, reason="HARNESS_DATA is not set: no MMLU to read")
def test_mmlu_by_name_reads_the_local_folder_and_its_path_is_no_part_of_its_identity(
    tmp_path: Path, index: Any
) -> None:
    folder = folder_in(os.environ["HARNESS_DATA"])
    assert folder is not None
    elsewhere = tmp_path / "cais_mmlu"
    elsewhere.symlink_to(folder)
    digests = set()
    for place in (folder, elsewhere):
        read_mmlu_from(index, str(place))
        (loaded,) = load_tasks(index, "mmlu_astronomy_generative", 3, None, 0)
        assert loaded.task.config.dataset_path == str(place)
        assert (loaded.kind, len(loaded.chosen), len(loaded.task.eval_docs)) == ("generate_until", 3, 152)
        digests.add(loaded.digest)
    assert len(digests) == 1
