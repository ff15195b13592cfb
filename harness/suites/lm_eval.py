"""lm-eval's tasks on our engines: it builds the prompts and computes the metrics, we score its requests.

Knows the tasks and where their data lie; knows no engine (scoring is a function that is handed in).
Documents already scored are answered from the rows of an earlier attempt.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import CellError

Pair = tuple[str, str]
Scored = Mapping[str, Any]
Score = Callable[[Sequence[Pair], Callable[[int, Scored], None]], None]


WORST = -1e30  # finite, since lm-eval takes a softmax over the options


def build_mmlu(parts: Mapping[str, Any], form: str, shots: int) -> dict[str, Any]:
    """lm-eval's own MMLU tasks over the given questions.

    Args:
        parts: Questions by subject.
        form: "letters" (``mmlu_*``) or "continuation" (``mmlu_*_continuation``).
        shots: Few-shot examples, taken in order from the dev split.

    Returns:
        ``{subject: lm_eval ConfigurableTask}``.
    """
    import lm_eval.tasks
    from lm_eval.api.task import ConfigurableTask

    for name in ("lm_eval", "lm_eval.api.task", "lm_eval.tasks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    folder = Path(lm_eval.tasks.__file__).parent / "mmlu"
    index = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False).task_index
    suffix = "_continuation" if form == "continuation" else ""
    tasks = {}
    for subject, questions in parts.items():
        config = dict(index[f"mmlu_{subject}{suffix}"].cfg or {})
        config.pop("tag", None)
        config |= {"num_fewshot": shots, "custom_dataset": _giver(questions)}
        tasks[subject] = ConfigurableTask(config=config)
    return tasks


def _giver(questions: Any) -> Callable[..., Any]:
    def give(**_: Any) -> Any:
        return questions

    return give


def run_mmlu(
    tasks: Mapping[str, Any],
    chosen: Mapping[str, list[int]],
    stored: Mapping[str, Mapping[str, Any]],
    score: Score,
    on_doc: Callable[[str, dict[str, Any]], None],
    render: Callable[[list[dict[str, str]]], str] | None = None,
) -> dict[str, Any]:
    """Evaluate one engine: lm-eval builds the requests and computes the metric, ``score`` scores them.

    Args:
        tasks: From ``build_mmlu``.
        chosen: Question numbers by subject.
        stored: Rows of documents that an earlier attempt finished, by key ``subject/number``.
        score: Scores text pairs, calling back with ``{"logprob", "is_greedy", "n_tokens", "finite"}``.
        on_doc: Told each finished document's key and row.
        render: Applies the model's chat template to messages; None for plain prompts.

    Returns:
        lm-eval's results by task, e.g. ``{"mmlu_astronomy": {"acc,none": ...}}``.
    """
    from lm_eval.evaluator import evaluate

    by_name = {task.config.task: subject for subject, task in tasks.items() if chosen.get(subject)}
    samples = {name: chosen[subject] for name, subject in by_name.items()}
    model = _model_class()(by_name, chosen, stored, score, on_doc, render)
    evaluated = evaluate(
        model,
        {tasks[subject].config.task: tasks[subject] for subject in by_name.values()},
        samples=samples,
        bootstrap_iters=0,
        apply_chat_template=render is not None,
    )
    return dict(evaluated["results"])


def _model_class() -> type:
    """The lm-eval model; made on first use, since lm-eval takes a second to import."""
    from lm_eval.api.model import LM

    class RowsLM(LM):  # type: ignore[misc]
        """Answers from stored rows, scores the rest, and turns complete documents into rows."""

        def __init__(self, by_name: Any, chosen: Any, stored: Any, score: Score, on_doc: Any, render: Any) -> None:
            super().__init__()
            self._by_name, self._chosen, self._stored = by_name, chosen, stored
            self._score, self._on_doc, self._render = score, on_doc, render

        def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
            if not add_generation_prompt:
                raise NotImplementedError("a prompt that ends inside the assistant's turn")
            return str(self._render(chat_history))

        @property
        def tokenizer_name(self) -> str:
            return "harness"

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            documents = _documents(requests, self._by_name, self._chosen)
            rows = {key: row for key, row in self._stored.items() if key in documents}
            self._score_missing({key: parts for key, parts in documents.items() if key not in rows}, rows)
            answers: dict[int, tuple[float, bool]] = {}
            for key, parts in documents.items():
                for request, logprob, greedy in zip(parts, rows[key]["logprobs"], rows[key]["is_greedy"], strict=True):
                    # A non-finite option must not win by accident: lm-eval's argmax would return a NaN's index.
                    answers[id(request)] = (WORST if logprob is None else logprob, greedy)
            return [answers[id(request)] for request in requests]

        def _score_missing(self, missing: dict[str, list[Any]], rows: dict[str, Any]) -> None:
            owners = [(key, request.idx) for key, parts in missing.items() for request in parts]
            pairs = [request.args for parts in missing.values() for request in parts]
            found: dict[str, dict[int, Scored]] = defaultdict(dict)
            tied: list[str] = []

            def on_result(index: int, result: Scored) -> None:
                key, option = owners[index]
                found[key][option] = result
                if len(found[key]) == len(missing[key]):
                    rows[key] = _row(key, missing[key], found.pop(key))
                    if rows[key]["finite"] and len(set(rows[key]["logprobs"])) == 1:
                        tied.append(key)
                    else:
                        self._on_doc(key, rows[key])

            if pairs:
                self._score(pairs, on_result)
            if tied:
                raise _no_information(tied)

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    return RowsLM


def _documents(
    requests: Sequence[Any], by_name: Mapping[str, str], chosen: Mapping[str, Sequence[int]]
) -> dict[str, list[Any]]:
    """lm-eval's requests by document, key ``subject/number``, its options in order."""
    documents: dict[str, list[Any]] = defaultdict(list)
    for request in sorted(requests, key=lambda request: int(request.idx)):
        subject = by_name[request.task_name]
        documents[f"{subject}/{chosen[subject][request.doc_id]:05d}"].append(request)
    return documents


def _no_information(tied: list[str]) -> CellError:
    """For questions whose options all score the same: the first option would win each, which looks like chance."""
    what = f"mmlu: all options of {len(tied)} questions score exactly the same, of {min(tied)} first"
    return CellError(f"{what}; this engine's log-likelihoods tell nothing")


def _row(key: str, parts: list[Any], options: Mapping[int, Scored]) -> dict[str, Any]:
    """One document as stored. A non-finite option makes it invalid: no prediction, neither right nor wrong."""
    subject, _, number = key.partition("/")
    gold = int(parts[0].doc["answer"])
    ordered = [options[index] for index in range(len(parts))]
    finite = all(option["finite"] for option in ordered)
    logprobs = [option["logprob"] if option["finite"] else None for option in ordered]
    pred = max(range(len(ordered)), key=lambda index: ordered[index]["logprob"]) if finite else None
    return {
        "subject": subject,
        "doc_id": int(number),
        "gold": gold,
        "logprobs": logprobs,
        "is_greedy": [option["is_greedy"] for option in ordered],
        "n_tokens": [option["n_tokens"] for option in ordered],
        "pred": pred,
        "correct": None if pred is None else pred == gold,
        "finite": finite,
    }
