"""lm-eval's tasks on our engines: it builds the prompts and computes the metrics, we score its requests.

Knows the tasks and where their data lie; knows no engine (scoring is a function that is handed in).
Documents already scored are answered from the rows of an earlier attempt.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.suites.data import suite_file

Pair = tuple[str, str]
Scored = Mapping[str, Any]
Score = Callable[[Sequence[Pair], Callable[[int, Scored], None]], None]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MmluData:
    """Where MMLU's questions come from.

    Attributes:
        kind: "hub" (cais/mmlu), "folder" (the same layout on disk) or "sample" (ours, not MMLU).
        path: Hub name, folder or file.
        label: What the score is called wherever it is shown.
    """

    kind: str
    path: str
    label: str

    @property
    def is_sample(self) -> bool:
        """Whether the score is of our own sample and not of MMLU."""
        return self.kind == "sample"


HUB = "cais/mmlu"
WORST = -1e30  # finite, since lm-eval takes a softmax over the options
# lm-eval draws a bar of its own for every task; read when tqdm is first imported.
os.environ.setdefault("TQDM_DISABLE", "1")


def find_mmlu(folder: str | None, environment: Mapping[str, str]) -> MmluData:
    """Choose the data: the folder given, then HARNESS_DATA, then the hub; our sample where none can be had.

    Raises:
        InputError: If a folder was given and holds no MMLU.
    """
    for source, base in (("--data", folder), ("HARNESS_DATA", environment.get("HARNESS_DATA"))):
        if not base:
            continue
        for candidate in (Path(base) / "mmlu" / "cais_mmlu", Path(base) / "cais_mmlu", Path(base)):
            if (candidate / "all").is_dir():
                return MmluData("folder", str(candidate), "MMLU")
        if source == "--data":
            raise InputError(
                f"--data {base}: found no MMLU there; expected mmlu/cais_mmlu/all/*.parquet as in the hub's cais/mmlu"
            )
    if hub_reachable():
        return MmluData("hub", HUB, "MMLU")
    return MmluData("sample", str(suite_file("mmlu/sample.jsonl")), "MMLU-format sample (not MMLU)")


def hub_reachable(timeout_s: float = 3.0) -> bool:
    """Whether ``cais/mmlu`` can be had: from the hub's cache on this machine, or from the hub now."""
    from urllib.request import Request, urlopen

    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(HUB, "all/test-00000-of-00001.parquet", repo_type="dataset"), str):
        return True
    if constants.is_offline_mode():
        return False
    try:
        with urlopen(Request(f"{constants.ENDPOINT}/api/datasets/{HUB}", method="HEAD"), timeout=timeout_s):
            return True
    except OSError as error:
        _logger.info("%s is out of reach: %s", constants.ENDPOINT, error)
        return False


def load_mmlu(data: MmluData) -> tuple[dict[str, Any], str]:
    """Questions by subject, and a digest of them.

    Returns:
        ``({subject: datasets.DatasetDict with splits test and dev}, sha256)``.
    """
    import datasets

    datasets.disable_progress_bars()
    if data.is_sample:
        whole: Any = datasets.DatasetDict()
        rows = [json.loads(line) for line in Path(data.path).read_text(encoding="utf-8").split("\n") if line]
        for split in ("test", "dev"):
            whole[split] = datasets.Dataset.from_list([row for row in rows if row["split"] == split])
    else:
        whole = datasets.load_dataset(data.path, "all")
    digest = hashlib.sha256()
    by_subject: dict[str, dict[str, list[int]]] = {}
    for split in ("test", "dev"):
        for question, choices, answer in zip(
            whole[split]["question"], whole[split]["choices"], whole[split]["answer"], strict=True
        ):
            digest.update(json.dumps([question, list(choices), answer]).encode())
        for index, subject in enumerate(whole[split]["subject"]):
            by_subject.setdefault(subject, {"test": [], "dev": []})[split].append(index)
    parts = {
        subject: datasets.DatasetDict({split: whole[split].select(indices) for split, indices in splits.items()})
        for subject, splits in sorted(by_subject.items())
    }
    return parts, digest.hexdigest()


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


def pick(sizes: Mapping[str, int], per_subject: int | None, seed: int) -> dict[str, list[int]]:
    """Balanced subset, the same for every variant.

    Args:
        sizes: Test questions of each subject.
        per_subject: How many of each, None for all.
        seed: Of the draw. A larger subset contains the smaller one of the same seed.

    Returns:
        ``{subject: sorted question numbers}``.

    >>> pick({"a": 3}, None, 0)
    {'a': [0, 1, 2]}
    """
    chosen = {}
    for subject, size in sizes.items():
        order = list(range(size))
        random.Random(f"{seed}/{subject}").shuffle(order)
        chosen[subject] = sorted(order if per_subject is None else order[:per_subject])
    return chosen


def run_mmlu(
    tasks: Mapping[str, Any],
    chosen: Mapping[str, list[int]],
    stored: Mapping[str, Mapping[str, Any]],
    score: Score,
    on_doc: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any]:
    """Evaluate one engine: lm-eval builds the requests and computes the metric, ``score`` scores them.

    Args:
        tasks: From ``build_mmlu``.
        chosen: Question numbers by subject.
        stored: Rows of documents that an earlier attempt finished, by key ``subject/number``.
        score: Scores text pairs, calling back with ``{"logprob", "is_greedy", "n_tokens", "finite"}``.
        on_doc: Told each finished document's key and row.

    Returns:
        lm-eval's results by task, e.g. ``{"mmlu_astronomy": {"acc,none": ...}}``.
    """
    from lm_eval.evaluator import evaluate

    by_name = {task.config.task: subject for subject, task in tasks.items() if chosen.get(subject)}
    samples = {name: chosen[subject] for name, subject in by_name.items()}
    model = _model_class()(by_name, chosen, stored, score, on_doc)
    evaluated = evaluate(
        model,
        {tasks[subject].config.task: tasks[subject] for subject in by_name.values()},
        samples=samples,
        bootstrap_iters=0,
    )
    return dict(evaluated["results"])


def _model_class() -> type:
    """The lm-eval model; made on first use, since lm-eval takes a second to import."""
    from lm_eval.api.model import LM

    class RowsLM(LM):  # type: ignore[misc]
        """Answers from stored rows, scores the rest, and turns complete documents into rows."""

        def __init__(self, by_name: Any, chosen: Any, stored: Any, score: Score, on_doc: Any) -> None:
            super().__init__()
            self._by_name, self._chosen, self._stored = by_name, chosen, stored
            self._score, self._on_doc = score, on_doc

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            documents: dict[str, list[Any]] = defaultdict(list)
            for request in requests:
                subject = self._by_name[request.task_name]
                number = self._chosen[subject][request.doc_id]
                documents[f"{subject}/{number:05d}"].append(request)
            for parts in documents.values():
                parts.sort(key=lambda request: request.idx)
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

            def on_result(index: int, result: Scored) -> None:
                key, option = owners[index]
                found[key][option] = result
                if len(found[key]) == len(missing[key]):
                    rows[key] = _row(key, missing[key], found.pop(key))
                    self._on_doc(key, rows[key])

            if pairs:
                self._score(pairs, on_result)

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    return RowsLM


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
