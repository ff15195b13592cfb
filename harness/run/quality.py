"""The untimed part of a sweep: every quality cell on its variant's worker, item by item. Derives no figure.

Parts that only score log-likelihoods are run once for all variants that differ in speculation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import CellError
from harness.plan import Cell
from harness.record import ItemRow
from harness.run.energy import metered
from harness.run.lm_eval import run_tasks
from harness.run.pool import WorkerHandle
from harness.run.scoring import FLOOR_ROWS
from harness.run.session import Session
from harness.suites.fidelity import greedy_prompts
from harness.suites.fidelity import text as fidelity_text
from harness.suites.tasks import PARTS

KINDS = ("story", "document")
Rows = Callable[[Mapping[str, Any]], None]


def run_quality(session: Session) -> None:
    """Run every cell that is not done; a failed cell is recorded and the others go on."""
    states = {cell.cell_id: cell.state for cell in session.store.cells()}
    order = {variant.name: index for index, variant in enumerate(session.prepared.variants)}
    planned = [cell for cell in session.prepared.cells if cell.suite != "speed" and cell.shared_with is None]
    # Variant by variant, the reference first: the others' divergence needs its logits.
    planned.sort(key=lambda cell: (cell.variant != session.prepared.reference.name, order[cell.variant]))
    try:
        for cell in planned:
            if states.get(str(cell.id)) != "done":
                _run(session, cell)
    finally:
        _reference_path(session).unlink(missing_ok=True)


def _run(session: Session, cell: Cell) -> None:
    session.meter.now(f"{cell.suite} · {cell.variant}")
    done = session.store.keys(str(cell.id))
    total = _size(session, cell)
    session.advance(cell.variant, cell.suite, cell.part, len(done) / total)

    def on_row(row: Mapping[str, Any]) -> None:
        session.store.add_item(ItemRow(str(cell.id), row["key"], row["kind"], row["payload"]))
        session.advance(cell.variant, cell.suite, cell.part, 1 / total)

    try:
        with session.timing(str(cell.id)):
            RUNNERS[(cell.suite, cell.part)](session, cell, done, on_row)
    except CellError as error:
        session.fail(cell, error)
    else:
        session.finish(cell)


def _size(session: Session, cell: Cell) -> int:
    """How many rows a cell will have; only for the progress bar."""
    suites = session.prepared.suites
    if cell.suite == "mmlu":
        return sum(len(numbers) for numbers in session.mmlu_chosen.values())
    if cell.suite == "lm_eval":
        # Of each document the answer and what became of it, and each task's totals.
        return max(1, sum(2 * len(one.chosen) + 1 for one in session.prepared.tasks if PARTS[one.kind] == cell.part))
    if suites.long_context is not None and cell.suite == "long_context":
        plan = suites.long_context
        return plan.texts * (1 if cell.part == "continuation" else len(plan.depths) * plan.probes)
    if suites.code_syntax is not None and cell.suite == "code_syntax":
        return suites.code_syntax.limit or 32
    assert suites.fidelity is not None
    if cell.part == "floor":
        return max(1, suites.fidelity.floor_tokens // FLOOR_ROWS)
    return suites.fidelity.greedy_prompts if cell.part != "kl" else max(1, suites.fidelity.tokens // 64)


def _chat(session: Session, cell: Cell) -> bool:
    """Whether the variant's prompts are put into the model's chat template."""
    return session.prepared.specs[cell.variant].chat_template


def _mmlu(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    from harness.suites.lm_eval import run_mmlu

    worker = session.worker(cell.variant)
    stored = {row.key: row.payload for row in session.store.items(str(cell.id))}

    def score(pairs: Sequence[tuple[str, str]], on_result: Callable[[int, Mapping[str, Any]], None]) -> None:
        with metered(session, cell):
            worker.call("loglikelihood", lambda row: on_result(row[0], row[1]), pairs=list(pairs), chat=chat)

    chat = _chat(session, cell)
    run_mmlu(
        session.mmlu_tasks,
        session.mmlu_chosen,
        stored,
        score,
        lambda key, row: on_row({"key": key, "kind": "doc", "payload": row}),
        (lambda messages: str(worker.call("render_chat", messages=messages))) if chat else None,
    )


def _probes(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.long_context
    assert plan is not None
    for number in range(plan.texts):
        session.worker(cell.variant).call(
            "probes",
            on_row,
            kind=KINDS[number % 2],
            seed=plan.seed * 1000 + number,
            depths=plan.depths,
            per_depth=plan.probes,
            done=sorted(done),
        )


def _continuation(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.long_context
    assert plan is not None
    for number in range(plan.texts):
        kind, seed = KINDS[number % 2], plan.seed * 1000 + 500 + number
        if f"{kind}-{seed}" not in done:
            session.worker(cell.variant).call(
                "continuation",
                on_row,
                kind=kind,
                seed=seed,
                start=plan.continuation_from,
                max_tokens=plan.continuation_tokens,
            )


def _programs(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.code_syntax
    assert plan is not None
    session.worker(cell.variant).call(
        "programs",
        on_row,
        limit=plan.limit,
        max_tokens=plan.max_tokens,
        done=sorted(done),
        chat=_chat(session, cell),
    )


def _reference_path(session: Session) -> Any:
    return session.folder / "reference_logits.npy"


def _kl(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.fidelity
    assert plan is not None
    path = _reference_path(session)
    reference = session.worker(session.prepared.reference.name)
    tokens = _text(session, reference, plan.tokens)
    if not session.reference_written:
        reference.call("kl_reference", tokens=tokens, path=str(path))
        session.reference_written = True
    session.worker(cell.variant).call("kl", on_row, tokens=tokens, path=str(path), done=sorted(done))


def _floor(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.fidelity
    assert plan is not None
    worker, path = session.worker(cell.variant), session.folder / "floor_logits.npy"
    tokens = _text(session, worker, plan.floor_tokens)
    try:
        worker.call("floor", on_row, tokens=tokens, path=str(path), done=sorted(done))
    finally:
        path.unlink(missing_ok=True)


def _text(session: Session, worker: WorkerHandle, limit: int) -> list[int]:
    """The first tokens of fidelity's text, as many as fit in every variant's context."""
    window = min(spec.ctx for spec in session.prepared.specs.values())
    tokens: list[int] = worker.call("tokenize", text=fidelity_text())
    return tokens[: min(limit, window)]


def _greedy(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.fidelity
    assert plan is not None
    todo = [(prompt.id, prompt.text) for prompt in greedy_prompts(plan.greedy_prompts) if prompt.id not in done]
    session.worker(cell.variant).call(
        "greedy", on_row, prompts=todo, max_tokens=plan.greedy_tokens, chat=_chat(session, cell)
    )


def _audit(session: Session, cell: Cell, done: set[str], on_row: Rows) -> None:
    plan = session.prepared.suites.fidelity
    assert plan is not None
    session.worker(cell.variant).call(
        "audit",
        on_row,
        prompts=[(prompt.id, prompt.text) for prompt in greedy_prompts(plan.greedy_prompts) if prompt.id not in done],
        max_tokens=plan.greedy_tokens,
        batch=session.prepared.specs[cell.variant].speculate.tokens + 1,
        chat=_chat(session, cell),
    )


RUNNERS: dict[tuple[str, str], Callable[[Session, Cell, set[str], Rows], None]] = {
    ("mmlu", "docs"): _mmlu,
    ("lm_eval", "scored"): run_tasks,
    ("lm_eval", "written"): run_tasks,
    ("long_context", "probes"): _probes,
    ("long_context", "continuation"): _continuation,
    ("code_syntax", "programs"): _programs,
    ("fidelity", "kl"): _kl,
    ("fidelity", "floor"): _floor,
    ("fidelity", "greedy"): _greedy,
    ("fidelity", "audit"): _audit,
}
