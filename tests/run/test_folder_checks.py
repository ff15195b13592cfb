"""What is told of a sweep's folder and data before any model file is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import InputError
from harness.run.sweep import rebuild_report, sweep
from harness.store import Store

from .conftest import Project

SUITES = """matrix: {weights: [f16, q8_0], speculate: [none, d]}
speculate: {d: {kind: draft_model, model: other.gguf}}
suites: {mmlu: {per_subject: 1}, speed: {prompt_tokens: [16], output_tokens: 4, rounds: 1}}
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"out": "a-file"}, "a-file is a file"),
        ({"out": "a-file/below"}, "a-file is a file"),
        ({"out": "x" * 300}, "cannot be made"),
        ({"out": "new", "resume": True}, "holds no run"),
        ({"resume": True, "fresh": True}, "exclude each other"),
        ({"data": "a-file"}, "found no MMLU there"),
        ({"data": "wrong"}, "cannot be read as MMLU"),
    ],
    ids=str,
)
def test_a_wrong_folder_is_told_before_anything_is_made(project: Project, options: dict[str, Any], said: str) -> None:
    (project.folder / "a-file").touch()
    (project.folder / "other.gguf").touch()
    (project.folder / "wrong" / "all").mkdir(parents=True)
    paths = {key: project.folder / value if isinstance(value, str) else value for key, value in options.items()}
    with pytest.raises(InputError, match=said) as caught:
        sweep(project.options("", SUITES, **paths))
    assert "\n" not in str(caught.value)
    assert not (project.folder / "cache").exists() and not (project.folder / "reports").exists()


def test_a_folder_that_cannot_be_written_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.folder.os.access", lambda path, mode: False)
    with pytest.raises(InputError, match="is not writable; choose another folder with --out"):
        sweep(project.options("", SUITES))


def test_a_draft_that_is_no_model_is_told(project: Project) -> None:
    (project.folder / "other.gguf").write_text("no model")
    with pytest.raises(InputError, match="begins with b'no m'"):
        sweep(project.options("", SUITES, suites=("speed",)))


def test_a_page_goes_through_a_link_and_into_a_device_without_replacing_them(project: Project) -> None:
    suites = "suites: {speed: {prompt_tokens: [16], output_tokens: 4, rounds: 1}}"
    run = Path(sweep(project.options("", f"matrix: {{weights: [f16, q8_0]}}\n{suites}")).folder)
    for name, target in (("page", project.folder / "target.html"), ("device", Path("/dev/null"))):
        link = project.folder / name
        link.symlink_to(target)
        rebuild_report(run, link)
        assert link.is_symlink()
    assert (project.folder / "target.html").read_text(encoding="utf-8").startswith("<!")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InputError, match="cannot be written"):
        rebuild_report(run, project.folder / "none" / "page.html")


def test_a_run_that_ended_as_it_began_has_no_report(tmp_path: Path) -> None:
    Store.create(tmp_path / "run.sqlite").close()
    with pytest.raises(InputError, match="give the same command again"):
        rebuild_report(tmp_path, None)
