"""Runs a task of lm-eval: it builds the prompts and judges the answers, we score and generate.

Every answer is kept as a row as soon as its document is complete, so an interrupted task goes on where it stopped; the
judgements follow when the task's last document is answered. Knows no engine (what answers is handed in), no variant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import CellError
from harness.suites.lm_eval import WORST
from harness.suites.tasks import Loaded

Response = Mapping[str, Any]
Ask = Callable[[Sequence[Any], Callable[[int, Response], None]], None]
# What a task that says nothing of it generates at most, as in lm-eval's transformers backend.
MOST_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Answerers:
    """What answers requests; each calls back with the index of a request and its response.

    Attributes:
        loglikelihood: Of ``(context, continuation)``: ``{"logprob", "is_greedy", "n_tokens", "finite", "cut"}``.
        rolling: Of texts: the same without ``is_greedy``, and ``windows``.
        generate: Of ``(prompt, settings)``: ``{"text", "finish_reason", "n_tokens", "cut"}``.
        render: Applies the model's chat template to messages; None for plain prompts.
    """

    loglikelihood: Ask
    rolling: Ask
    generate: Ask
    render: Callable[[list[dict[str, str]]], str] | None = None


def key_of(task: str, number: int) -> str:
    """The key of a document's answer among a cell's rows."""
    return f"{task}/{number:06d}"


def run_task(
    loaded: Loaded,
    stored: Mapping[str, Mapping[str, Any]],
    ask: Answerers,
    on_row: Callable[[str, str, dict[str, Any]], None],
) -> None:
    """Answer and judge a task's documents.

    Args:
        loaded: The task.
        stored: Payloads that an earlier attempt left, by key.
        ask: Answers what is not stored.
        on_row: Told ``(key, kind, payload)``: an ``answer`` for each document as it is complete, then a ``judged`` for
            each document and one ``task`` with lm-eval's own totals.

    Raises:
        CellError: The engine's log-likelihoods tell nothing.
    """
    from lm_eval.evaluator import evaluate

    answers = {
        number: payload for number in loaded.chosen if (payload := stored.get(key_of(loaded.name, number))) is not None
    }

    def on_answer(number: int, payload: dict[str, Any]) -> None:
        on_row(key_of(loaded.name, number), "answer", payload)

    evaluated = evaluate(
        _model_class()(loaded, answers, ask, on_answer),
        {loaded.name: loaded.task},
        samples={loaded.name: list(loaded.chosen)},
        bootstrap_iters=0,
        apply_chat_template=ask.render is not None,
    )
    _refuse_ties(loaded.name, answers)
    for number, payload in _judged(loaded, evaluated["samples"][loaded.name], answers):
        on_row(f"{key_of(loaded.name, number)}/judged", "judged", payload)
    on_row(loaded.name, "task", _totals(loaded, evaluated))


def _judged(
    loaded: Loaded, samples: Sequence[Mapping[str, Any]], answers: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """What lm-eval made of each document: its value of each metric, by ``metric,filter``."""
    values: dict[int, dict[str, Any]] = defaultdict(dict)
    for sample in samples:
        for metric in sample["metrics"]:
            values[sample["doc_id"]][f"{metric},{sample['filter']}"] = _plain(sample[metric])
    for number, found in values.items():
        finite = all(one.get("finite", True) for one in answers[number]["responses"])
        yield number, {"row": "judged", "task": loaded.name, "doc_id": number, "values": found, "finite": finite}


def _plain(value: Any) -> Any:
    """A metric's value as JSON: a number, or the numbers that a total is made of."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _totals(loaded: Loaded, evaluated: Mapping[str, Any]) -> dict[str, Any]:
    results, task = evaluated["results"][loaded.name], loaded.task
    better, ways = evaluated["higher_is_better"][loaded.name], task.aggregation()
    metrics = [
        {
            "key": key,
            "value": _plain(value),
            "higher_is_better": better.get(key.partition(",")[0]),
            "aggregation": getattr(ways.get(key.partition(",")[0]), "__name__", "unknown"),
        }
        for key, value in results.items()
        if "," in key and "_stderr" not in key
    ]
    return {
        "row": "task",
        "task": loaded.name,
        "kind": loaded.kind,
        "version": str(task.VERSION),
        "shots": loaded.shots,
        "n": len(loaded.chosen),
        "of": len(task.eval_docs),
        "options": _options(loaded),
        "metrics": metrics,
    }


def _options(loaded: Loaded) -> float | None:
    """Choices of a question, as the harmonic mean that guessing goes by; None where there is nothing to choose from."""
    if loaded.kind != "multiple_choice":
        return None
    counts = [len(loaded.task.doc_to_choice(loaded.task.eval_docs[number])) for number in loaded.chosen]
    return len(counts) / math.fsum(1 / count for count in counts) if counts and min(counts) > 0 else None


def _refuse_ties(task: str, answers: Mapping[int, Mapping[str, Any]]) -> None:
    """Where the options of every question score the same, the first would win each, which looks like chance."""
    chosen = [
        [one["logprob"] for one in answer["responses"]]
        for answer in answers.values()
        if len(answer["responses"]) > 1 and all(one.get("logprob") is not None for one in answer["responses"])
    ]
    if len(chosen) > 1 and all(len(set(found)) == 1 for found in chosen):
        raise CellError(f"{task}: all options of all {len(chosen)} questions score the same; this engine tells nothing")


@dataclass(frozen=True, slots=True)
class Documents:
    """A task's documents at work.

    Attributes:
        loaded: The task.
        answers: What is answered, by document.
        on_answer: Told each document and its payload as it is complete.
    """

    loaded: Loaded
    answers: dict[int, Mapping[str, Any]]
    on_answer: Callable[[int, dict[str, Any]], None]

    def responses(self, requests: Sequence[Any], given: Callable[[Any, int], Any], ask: Ask) -> list[Response]:
        """Responses in the order of lm-eval's requests; of documents that are not answered yet, ``ask`` is asked.

        Args:
            requests: Each names its document, and its place among the document's requests.
            given: From a request's arguments and that place to what ``ask`` takes.
            ask: See ``Answerers``.
        """
        places: dict[int, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            places[self.loaded.chosen[request.doc_id]].append(place)
        for found in places.values():
            found.sort(key=lambda place: int(requests[place].idx))
        waiting: dict[int, dict[int, Response]] = {number: {} for number in places if number not in self.answers}
        owners = [(number, at) for number in waiting for at in range(len(places[number]))]

        def on_response(index: int, response: Response) -> None:
            number, at = owners[index]
            waiting[number][at] = response
            if len(waiting[number]) == len(places[number]):
                ordered = [dict(waiting[number][i]) for i in range(len(places[number]))]
                payload = {"row": "answer", "task": self.loaded.name, "doc_id": number, "responses": ordered}
                self.answers[number] = payload
                self.on_answer(number, payload)

        if owners:
            ask([given(requests[places[number][at]].args, at) for number, at in owners], on_response)
        answered: dict[int, Response] = {}
        for number, found in places.items():
            answered |= dict(zip(found, self.answers[number]["responses"], strict=True))
        return [answered[place] for place in range(len(requests))]


def _model_class() -> type:
    """The lm-eval model; made on first use, since lm-eval takes a second to import."""
    from lm_eval.api.model import LM

    class Asker(LM):  # type: ignore[misc]
        """Answers from stored rows, asks for the rest, and turns complete documents into rows."""

        def __init__(
            self,
            loaded: Loaded,
            answers: dict[int, Mapping[str, Any]],
            ask: Answerers,
            on_answer: Callable[[int, dict[str, Any]], None],
        ) -> None:
            super().__init__()
            self._ask, self._documents = ask, Documents(loaded, answers, on_answer)

        def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
            if not add_generation_prompt:
                raise NotImplementedError("a prompt that ends inside the assistant's turn")
            assert self._ask.render is not None
            return self._ask.render(chat_history)

        @property
        def tokenizer_name(self) -> str:
            return "harness"

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            found = self._documents.responses(requests, lambda arguments, _: arguments, self._ask.loglikelihood)
            # A non-finite option must not win by accident: lm-eval's argmax would return a NaN's index.
            return [(WORST if one["logprob"] is None else one["logprob"], one["is_greedy"]) for one in found]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            found = self._documents.responses(requests, lambda arguments, _: arguments[0], self._ask.rolling)
            return [WORST if one["logprob"] is None else one["logprob"] for one in found]

        def generate_until(self, requests: list[Any]) -> list[str]:
            def given(arguments: Any, at: int) -> Any:
                # A document that is asked several times must not get the same sample each time.
                return arguments[0], {**settings_of(arguments[1]), "seed": at}

            found = self._documents.responses(requests, given, self._ask.generate)
            return [one["text"] for one in found]

    return Asker


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    r"""lm-eval's generation settings as an engine takes them.

    >>> settings_of({"until": "\n", "do_sample": False, "temperature": 0.7})
    {'max_tokens': 256, 'stop': ['\n'], 'temperature': 0.0, 'top_p': 1.0, 'top_k': 0}
    """
    until = given.get("until") or []
    temperature = float(given.get("temperature") or 0.0)
    return {
        "max_tokens": int(given.get("max_gen_toks") or given.get("max_new_tokens") or MOST_TOKENS),
        "stop": [until] if isinstance(until, str) else [text for text in until if text],
        "temperature": temperature if given.get("do_sample", temperature > 0) else 0.0,
        "top_p": float(given.get("top_p") or 1.0),
        "top_k": int(given.get("top_k") or 0),
    }
