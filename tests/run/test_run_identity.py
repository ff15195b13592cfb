"""A run goes on only as itself: whatever could change a figure makes another run, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InputError
from harness.run import prepare as preparing
from harness.run.folder import RunFolder, open_folder
from harness.run.prepare import Mmlu, Prepared, SweepOptions
from harness.suites import data
from harness.suites.mmlu import MmluData

from .conftest import Project, tiny_gguf

SPEED = "suites: {speed: {prompt_tokens: [16], output_tokens: 2, rounds: 1}}"
DRAFT = """matrix: {{speculate: [none, d]}}
speculate: {{d: {{kind: draft_model, model: {0}}}}}
suites: {1}"""
NOW = datetime(2030, 1, 1)


def opened(made: tuple[SweepOptions, Prepared]) -> RunFolder:
    run = open_folder(*made, NOW)
    run.store.close()
    run.lock.release()
    return run


def test_another_batch_another_draft_and_other_bytes_at_the_same_path_are_fresh_runs(project: Project) -> None:
    for name in ("one", "two"):
        tiny_gguf(project.folder / f"{name}.gguf", name.encode() * 21 + b"\0")
    one, two = (DRAFT.format(f"{name}.gguf", SPEED.removeprefix("suites: ")) for name in ("one", "two"))
    first = opened(project.prepare(", ubatch: 64", one))
    batch = opened(project.prepare(", ubatch: 64, batch: 256", one))
    draft = opened(project.prepare(", ubatch: 64", two))
    tiny_gguf(project.model, b"\1" * 64)
    other = opened(project.prepare(", ubatch: 64", one))
    runs = [first, batch, draft, other]
    assert not any(run.resumed for run in runs)
    assert len({run.path for run in runs}) == 4
    tiny_gguf(project.model)
    again = opened(project.prepare(", ubatch: 64", one))
    assert (again.path, again.resumed) == (first.path, True)


def test_the_draft_alone_makes_another_run_where_only_scoring_is_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scored cells are the same; the run that names its variants is not."""
    sample = Mmlu(MmluData("sample", "s", "s"), {}, "digest")
    monkeypatch.setattr(preparing, "_mmlu", lambda suites, options: sample)
    found = []
    for name in ("one", "two"):
        tiny_gguf(project.folder / f"{name}.gguf", name.encode() * 21 + b"\0")
        found.append(project.prepare("", DRAFT.format(f"{name}.gguf", "{mmlu: {}}"))[1])
    assert [cell.id for cell in found[0].cells] == [cell.id for cell in found[1].cells]
    assert found[0].fingerprint != found[1].fingerprint


def test_other_prompts_are_another_run(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = f"matrix: {{weights: [f16]}}\n{SPEED}"
    before = project.prepare("", config)[1].fingerprint
    real: Callable[[str], Any] = data.suite_file
    copy = tmp_path / "code_syntax"
    copy.mkdir()
    for file in real("code_syntax").iterdir():
        (copy / file.name).write_bytes(file.read_bytes() + (b"\n" if file.name.endswith(".md") else b""))
    monkeypatch.setattr(data, "suite_file", lambda name: copy if name == "code_syntax" else real(name))
    assert project.prepare("", config)[1].fingerprint == before, "a description is no prompt"
    (copy / "suite.yaml").write_bytes((copy / "suite.yaml").read_bytes() + b"# \n")
    assert project.prepare("", config)[1].fingerprint != before


def test_bytes_that_change_under_a_kept_time_and_size_are_seen(project: Project) -> None:
    config = f"matrix: {{weights: [f16]}}\n{SPEED}"
    os.utime(project.model, ns=(1, 1))
    before, changed = project.prepare("", config)[1], project.model.stat().st_ctime_ns
    while project.model.stat().st_ctime_ns == changed:  # the kernel's clock ticks every few milliseconds
        tiny_gguf(project.model, b"\1" * 64)
        os.utime(project.model, ns=(1, 1))
    assert project.prepare("", config)[1].fingerprint != before.fingerprint


def test_another_machine_never_goes_on_with_a_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine, one front: two fingerprints never meet in one folder."""
    config, out = f"matrix: {{weights: [f16]}}\n{SPEED}", project.folder / "given"
    here = opened(project.prepare("", config))
    opened(project.prepare("", config, out=out))
    real = preparing.machine
    monkeypatch.setattr(preparing, "machine", lambda: {**real(), "fingerprint": "another"})
    there = opened(project.prepare("", config))
    assert (there.resumed, there.path == here.path) == (False, False)
    with pytest.raises(InputError, match="another plan or machine"):
        open_folder(*project.prepare("", config, out=out), NOW)
    monkeypatch.setattr(preparing, "machine", lambda: {**real(), "fingerprint": "third"})
    with pytest.raises(InputError, match="no run of this plan on this machine"):
        open_folder(*project.prepare("", config, resume=True), NOW)


def test_more_threads_than_the_control_group_allows_are_a_note_of_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "effective_cpus", lambda: 4)
    made = project.prepare("", f"matrix: {{threads: [1, 64]}}\n{SPEED}")[1]
    assert [line for line in made.warnings if line.startswith("f16+t64: threads 64 on 4 available cores")]
