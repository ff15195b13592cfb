"""lm-eval's tasks in a sweep: loaded once for all variants, then answered by each one's worker. Derives no figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.config import Config, Finding
from harness.errors import InputError
from harness.plan import Cell
from harness.suite_plans import SuitePlan
from harness.suites.ask import Answerers, Ask, run_task
from harness.suites.mmlu import folder_in
from harness.suites.tasks import PARTS, Loaded, load_tasks, manager, read_mmlu_from

if TYPE_CHECKING:
    from harness.run.session import Session


def tasks_of(
    config: Config, suites: SuitePlan, say: Callable[[str], None], data: Sequence[str] = ()
) -> tuple[Loaded, ...]:
    """The tasks that a configuration asks for, with their data; none without the suite.

    MMLU is read from the first of the folders ``data`` that has it, else from where lm-eval finds it.

    Raises:
        ConfigError: One can't be had, or is asked for twice.
    """
    plan = suites.lm_eval
    if plan is None:
        return ()
    say(f"lm-eval tasks: {', '.join(asked.task for asked in plan.tasks)}")
    index = manager(plan.include, [asked.task for asked in plan.tasks])
    if local := next((folder for base in data if (folder := folder_in(base)) is not None), None):
        read_mmlu_from(index, str(local))
    found: dict[str, Loaded] = {}
    for number, asked in enumerate(plan.tasks):
        place = ("suites", "lm_eval", "tasks", number)
        try:
            loaded = load_tasks(index, asked.task, asked.limit, asked.shots, plan.seed)
        except InputError as error:
            raise config.fault([Finding(place, str(error))]) from error
        if twice := [one.name for one in loaded if one.name in found]:
            raise config.fault([Finding(place, f"task {twice[0]} is asked for twice; name it once")])
        found |= {one.name: one for one in loaded}
    return tuple(found.values())


def run_tasks(session: Session, cell: Cell, done: set[str], on_row: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer and judge the tasks of one part, those that are whole already left out."""
    spec = session.prepared.specs[cell.variant]
    worker, chat = session.worker(cell.variant), spec.chat_template
    stored = {row.key: row.payload for row in session.store.items(str(cell.id))}

    def asking(method: str, name: str, **more: Any) -> Ask:
        def ask(given: Sequence[Any], on_response: Callable[[int, Mapping[str, Any]], None]) -> None:
            named = {name: list(given), "room": spec.ctx, **more}
            worker.call(method, lambda row: on_response(row[0], row[1]), **named)

        return ask

    def keep(key: str, kind: str, row: dict[str, Any]) -> None:
        if key not in done:  # a task that was cut off in the midst of judging is judged again
            on_row({"key": key, "kind": kind, "payload": row})

    ask = Answerers(
        asking("loglikelihood", "pairs", chat=chat),
        asking("rolling", "texts"),
        asking("write", "requests", chat=chat),
        (lambda messages: str(worker.call("render_chat", messages=messages))) if chat else None,
    )
    for loaded in session.prepared.tasks:
        if PARTS[loaded.kind] == cell.part and loaded.name not in done:
            session.meter.now(f"{loaded.name} · {cell.variant}")
            run_task(loaded, stored, ask, keep)
