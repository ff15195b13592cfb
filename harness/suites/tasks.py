"""Tasks of lm-eval by name: its index, their data, and which documents are asked. Asks nothing."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import InputError, did_you_mean
from harness.suites.data import suite_yaml
from harness.suites.mmlu import HUB, pick

# By what lm-eval calls them, the kinds of requests, and the part of the suite that answers them.
PARTS = {"multiple_choice": "scored", "loglikelihood": "scored", "loglikelihood_rolling": "scored"}
PARTS |= {"generate_until": "written"}
# As lm-eval's own command line draws few-shot examples.
FEWSHOT_SEED = 1234


@dataclass(frozen=True, slots=True)
class Loaded:
    """A task at hand.

    Attributes:
        name: Of lm-eval.
        task: Its ``ConfigurableTask``.
        kind: Its output type, a key of ``PARTS``.
        chosen: Numbers of the documents that are asked, ascending.
        shots: Examples before each.
        digest: sha256 of its definition and of the documents.
    """

    name: str
    task: Any
    kind: str
    chosen: tuple[int, ...]
    shots: int
    digest: str


def manager(include: str | None, names: Sequence[str] = ()) -> Any:
    """lm-eval's index of its own tasks and of those in a folder; of the folder alone where that has all the names.

    To index its own thousands of tasks takes lm-eval some seconds.

    Raises:
        InputError: A file in the folder is no task.
    """
    from lm_eval.tasks import TaskManager

    for name in ("lm_eval", "lm_eval.api.task", "lm_eval.tasks", "lm_eval.evaluator"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        if include and names:
            own = TaskManager(include_path=include, include_defaults=False)
            if set(names) <= set(own.all_tasks):
                return own
        return TaskManager(include_path=include)
    except Exception as error:  # whatever a file of the user's makes the library raise
        raise InputError(f"{include}: lm-eval cannot read the tasks in it ({_reason(error)}); correct them") from error


def read_mmlu_from(index: Any, folder: str) -> None:
    """Let every task over the hub's ``cais/mmlu`` (mmlu, mmlu_generative, ...) read it from a folder of that layout."""
    from lm_eval.tasks._factory import TaskFactory

    class Local(TaskFactory):  # type: ignore[misc]
        def _load_full_config(self, entry: Any, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
            config: dict[str, Any] = super()._load_full_config(entry, overrides)
            if config.get("dataset_path") == HUB:
                config["dataset_path"] = folder
            return config

    index._factory = Local(meta=index.metadata)


def expanded(name: str) -> tuple[str, ...]:
    """The tasks of a set of ours, or the name itself."""
    return tuple(suite_yaml("lm_eval")["sets"].get(name, (name,)))


def load_tasks(index: Any, name: str, limit: int | None, shots: int | None, seed: int) -> list[Loaded]:
    """The tasks behind a name: one, or those of a group, a tag or a set.

    Args:
        index: From ``manager``.
        name: As in the configuration.
        limit: Documents of each task, None for all.
        shots: Few-shot examples, None for each task's own number.
        seed: Of the draw of documents.

    Raises:
        InputError: No such task, its data can't be had, or it needs what no engine here gives.
    """
    known = [*index.all_tasks, *suite_yaml("lm_eval")["sets"]]
    if name not in known:
        raise InputError(f"no task {name!r} in lm-eval; {did_you_mean(name, known)}; `lm_eval ls tasks` lists all")
    found: dict[str, Any] = {}
    for one in expanded(name):
        try:
            found |= index.load([one])["tasks"]
        except Exception as error:  # the data sets', the hub client's, the system's and each task's own errors
            raise InputError(
                f"task {one!r}: its data cannot be loaded ({_reason(error)}); is the hub in reach?"
            ) from error
    return [_loaded(task_name, task, limit, shots, seed) for task_name, task in found.items()]


def _loaded(name: str, task: Any, limit: int | None, shots: int | None, seed: int) -> Loaded:
    kind = str(task.OUTPUT_TYPE)
    if kind not in PARTS or getattr(task, "MULTIMODAL", False):
        raise InputError(
            f"task {name!r} asks for {kind}, not for text alone; expected {', '.join(PARTS)}; leave it out"
        )
    if getattr(task, "UNSAFE_CODE", False):
        raise InputError(f"task {name!r} runs code that the model writes, outside of any sandbox; leave it out")
    if shots is not None:
        task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=FEWSHOT_SEED)
    documents = task.eval_docs
    chosen = tuple(pick({name: len(documents)}, limit, seed)[name])
    # The documents stand for their folder: the same ones from elsewhere are the same task.
    definition = {key: value for key, value in task.dump_config().items() if key != "dataset_path"}
    digest = hashlib.sha256(json.dumps(definition, sort_keys=True, default=str).encode())
    for number in chosen:
        digest.update(json.dumps(documents[number], sort_keys=True, default=str).encode())
    return Loaded(name, task, kind, chosen, int(task.config.num_fewshot or 0), digest.hexdigest())


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def digest_of(tasks: Sequence[Loaded]) -> str:
    """sha256 (hex) of all tasks, their definitions and their documents."""
    return hashlib.sha256("\n".join(f"{one.name} {one.digest}" for one in tasks).encode()).hexdigest()
