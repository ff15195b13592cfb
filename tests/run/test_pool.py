"""Workers are real processes here, with the fake engine: what they answer, and how their deaths are told."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from harness.backends.base import EngineSpec, Speculate
from harness.errors import CellError, WorkerDied
from harness.run.pool import Pool, WorkerHandle

SPEC = EngineSpec(backend="fake", model_path="none", model_digest="0" * 64, weights="f16", ctx=512)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerHandle]:
    handle = WorkerHandle(tmp_path / "worker.log")
    handle.call("load", spec=SPEC)
    yield handle
    handle.kill()


def test_rows_come_before_the_result(worker: WorkerHandle) -> None:
    rows: list[tuple[int, dict[str, object]]] = []
    scored = worker.call("loglikelihood", rows.append, pairs=[("Question", " A"), ("Question", " B")])
    assert scored == 2
    assert sorted(index for index, _ in rows) == [0, 1]
    assert all(row["finite"] and float(str(row["logprob"])) < 0 for _, row in rows)


def test_a_trial_is_the_raw_record(worker: WorkerHandle) -> None:
    payload = worker.call("trial", prompt=[0, 5, 6], output_tokens=8, threads=1)
    record = payload["record"]
    stamps = [event[0] for event in record["events"]]
    assert stamps == sorted(stamps) and stamps[0] >= record["sent_ns"]
    assert sum(event[1] for event in record["events"]) == record["output_tokens"]
    assert payload["prompt_tokens"] == record["prompt_tokens"] == 3
    assert payload["contention"]["wall_s"] > 0
    assert payload["energy"]


def test_a_method_before_load_is_a_bug_that_is_told_not_a_crash(tmp_path: Path) -> None:
    handle = WorkerHandle(tmp_path / "worker.log")
    try:
        with pytest.raises(CellError, match="load comes first"):
            handle.call("tokenize", text="x")
        handle.call("load", spec=SPEC)
        assert handle.call("tokenize", text="x")
    finally:
        handle.kill()
    assert "Traceback" in (tmp_path / "worker.log").read_text()


def test_bad_settings_are_the_cells_failure(tmp_path: Path) -> None:
    handle = WorkerHandle(tmp_path / "worker.log")
    try:
        with pytest.raises(CellError, match="iq9_z"):
            handle.call("load", spec=EngineSpec(backend="fake", model_path="", model_digest="", weights="iq9_z"))
    finally:
        handle.kill()


def test_a_killed_worker_is_told_with_its_signal(worker: WorkerHandle) -> None:
    threading.Timer(0.3, os.kill, (worker.pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerDied, match=r"SIGKILL \(out of memory\?\)"):
        worker.call("trial", prompt=[0, 5], output_tokens=500, threads=1)
        worker.call("greedy", prompts=[("p", "x")] * 10_000, max_tokens=400)


def test_a_worker_that_ends_in_the_middle_of_a_message_is_told(worker: WorkerHandle) -> None:
    """A message of 1000 bytes is announced, one comes."""
    ours, theirs = socket.socketpair()
    worker._connection = Connection(ours.detach())
    theirs.sendall(struct.pack("!i", 1000) + b"x")
    theirs.shutdown(socket.SHUT_WR)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="ended in 'trial' by SIGKILL"):
        worker.call("trial", prompt=[0, 5], output_tokens=1, threads=1)
    theirs.close()


def test_a_worker_that_hangs_up_and_stays_is_killed(worker: WorkerHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that hangs while a driver is closed."""
    monkeypatch.setattr("harness.run.pool.END_S", 0.05)
    ours, theirs = socket.socketpair()
    kept = worker._connection  # closed, the worker would end by itself
    worker._connection = Connection(ours.detach())
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(WorkerDied, match="hung up in 'trial' and did not end; killed"):
        worker.call("trial", prompt=[0, 5], output_tokens=1, threads=1)
    theirs.close()
    kept.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_a_fault_of_who_takes_the_rows_is_not_the_workers(worker: WorkerHandle) -> None:
    def full(row: object) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        worker.call("loglikelihood", full, pairs=[("Question", " A")])


def test_a_silent_worker_is_killed_at_its_limit(worker: WorkerHandle) -> None:
    with pytest.raises(WorkerDied, match=r"no sign of life for 0\.2 s in 'warm'"):
        worker.call("warm", None, quiet_limit_s=0.2, prompts=[[0, 5]] * 1000, output_tokens=500)


def test_the_pool_keeps_to_its_budget(tmp_path: Path) -> None:
    held = 100

    def warm(handle: WorkerHandle, spec: EngineSpec) -> int:
        handle.call("load", spec=spec)
        return held

    pool = Pool(tmp_path, 250, warm)
    try:
        first = pool.get("a", SPEC)
        assert pool.get("a", SPEC) is first
        second = pool.get("b", SPEC)
        pool.get("c", SPEC)  # a is the least recently used
        assert pool.get("b", SPEC) is second
        assert pool.get("a", SPEC) is not first
    finally:
        pool.close()


def test_a_variant_that_cannot_be_loaded_leaves_no_process(tmp_path: Path) -> None:
    started: list[WorkerHandle] = []

    def warm(handle: WorkerHandle, spec: EngineSpec) -> int:
        started.append(handle)
        raise CellError("no")

    pool = Pool(tmp_path, 1e9, warm)
    with pytest.raises(CellError, match="no"):
        pool.get("a", SPEC)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from harness.run.pool import WorkerHandle
from harness.backends.base import EngineSpec
handle = WorkerHandle(Path({str(tmp_path / "w.log")!r}))
handle.call("load", spec=EngineSpec(backend="fake", model_path="", model_digest="", weights="f16", ctx=4096))
print(handle.pid, flush=True)
handle.call("warm", prompts=[[0, 5]] * 100000, output_tokens=4000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < deadline, "the worker outlived its parent"
            time.sleep(0.02)


def test_speculating_workers_count(tmp_path: Path) -> None:
    handle = WorkerHandle(tmp_path / "worker.log")
    try:
        spec = EngineSpec(
            backend="fake", model_path="", model_digest="", weights="f16", ctx=512, speculate=Speculate("prompt_lookup")
        )
        handle.call("load", spec=spec)
        record = handle.call("trial", prompt=[0, 5], output_tokens=12, threads=1)["record"]
        assert record["drafted"] > record["accepted"] > 0
        assert record["verify_steps"] < record["output_tokens"]
        assert any(event[1] > 1 for event in record["events"])
    finally:
        handle.kill()
