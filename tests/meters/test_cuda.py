"""Bandwidth of a GPU's memory, against a made-up CUDA driver."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import pytest

from harness.meters import cuda
from harness.meters.bandwidth import MIB


class FakeCuda:
    """A driver with one GPU: a copy of 1 GiB four times takes ``milliseconds`` in turn.

    Args:
        fails: Code by function that refuses.
        free: Free bytes.
        gpus: How many there are.
    """

    def __init__(
        self, *milliseconds: float, fails: dict[str, int] | None = None, free: int = 80 * 1024 * MIB, gpus: int = 1
    ) -> None:
        self.milliseconds, self.fails, self.free, self.gpus = list(milliseconds or (4.0,)), fails or {}, free, gpus
        self.calls: list[str] = []
        self.allocated = 0
        self.retained = 0
        self.copied: list[tuple[int, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        handler = getattr(type(self), f"on_{name}", None)
        if handler is None:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            handler(self, *args)
            return 0

        return call

    def on_cuInit(self, flags: int) -> None: ...

    def on_cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = self.gpus

    def on_cuDeviceGet(self, device: Any, ordinal: int) -> None:
        device._obj.value = ordinal

    def on_cuDeviceGetName(self, text: Any, size: int, device: Any) -> None:
        text.value = b"Fake H100"

    def on_cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> None:
        value._obj.value = 50 * MIB if number == 38 else 0

    def on_cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:
        self.retained += 1

    def on_cuDevicePrimaryCtxRelease_v2(self, device: Any) -> None:
        self.retained -= 1

    def on_cuCtxSetCurrent(self, context: Any) -> None: ...

    def on_cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value = self.free

    def on_cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        self.allocated += 1
        address._obj.value = 0x7F00_0000_0000 + self.allocated

    def on_cuMemFree_v2(self, address: Any) -> None:
        self.allocated -= 1

    def on_cuMemsetD8_v2(self, address: Any, value: Any, size: Any) -> None: ...

    def on_cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        self.copied.append((target.value, source.value, size.value))

    def on_cuEventCreate(self, event: Any, flags: int) -> None: ...

    def on_cuEventDestroy_v2(self, event: Any) -> None: ...

    def on_cuEventRecord(self, event: Any, stream: Any) -> None: ...

    def on_cuEventSynchronize(self, event: Any) -> None: ...

    def on_cuEventElapsedTime(self, milliseconds: Any, before: Any, after: Any) -> None:
        milliseconds._obj.value = self.milliseconds.pop(0) if len(self.milliseconds) > 1 else self.milliseconds[0]

    def on_cuGetErrorString(self, code: int, text: Any) -> None:
        text._obj.value = b"out of memory"


def test_a_copy_counts_its_bytes_twice() -> None:
    # The first pass is not counted; 4 copies of 1 GiB in 4 ms are 2 GiB a millisecond.
    lib = FakeCuda(100.0, 4.0, 8.0, 8.0, 16.0, 8.0, 8.0, 8.0, 8.0, 8.0)
    seen = cuda.measure(lib)
    assert seen.best == 2048 * MIB * 1e3
    assert seen.median == 1024 * MIB * 1e3
    assert (seen.n, seen.array_bytes, seen.threads, seen.device) == (9, 1024 * MIB, None, "Fake H100")
    assert (seen.cache_bytes, seen.enough) == (50 * MIB, True)
    target, source, size = lib.copied[0]
    assert target != source and size == 1024 * MIB and len(lib.copied) == 4 * 10
    json.dumps(seen.as_dict(), allow_nan=False)


def test_everything_is_given_back() -> None:
    lib = FakeCuda()
    cuda.measure(lib)
    assert (lib.allocated, lib.retained) == (0, 0)
    failing = FakeCuda(fails={"cuMemcpyDtoDAsync_v2": 700})
    with pytest.raises(cuda.CudaError, match="cuMemcpyDtoDAsync_v2: out of memory"):
        cuda.measure(failing)
    assert (failing.allocated, failing.retained) == (0, 0)


def test_little_free_memory_makes_the_arrays_smaller_and_says_so() -> None:
    seen = cuda.measure(FakeCuda(free=8 * 100 * MIB + 5))
    assert (seen.array_bytes, seen.enough) == (100 * MIB, False)
    with pytest.raises(cuda.CudaError, match="64 MiB of GPU memory are free; 128 MiB are needed"):
        cuda.measure(FakeCuda(free=64 * MIB))


def test_reasons() -> None:
    with pytest.raises(cuda.CudaError, match="sees no GPU"):
        cuda.measure(FakeCuda(gpus=0))
    with pytest.raises(cuda.CudaError, match="cuInit: out of memory"):
        cuda.measure(FakeCuda(fails={"cuInit": 100}))
    with pytest.raises(cuda.CudaError, match="CUDA error 100"):
        cuda.measure(FakeCuda(fails={"cuInit": 100, "cuGetErrorString": 1}))
    with pytest.raises(cuda.CudaError, match="clock stood still"):
        cuda.measure(FakeCuda(0.0))
    with pytest.raises(cuda.CudaError, match="too old: it has no cuInit"):
        cuda.measure(object())


def test_no_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    cuda.main()
    assert json.loads(capsys.readouterr().out) == {
        "best": None, "median": None, "n": 0, "why": "no CUDA driver here",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('libcuda: bad version')", "without an answer: libcuda: bad version"),
        ("import os; os.abort()", "without an answer: exit code -6"),
        ("print('[]')", "gave no answer"),
    ],
)
def test_a_probe_that_breaks_breaks_nothing_else(code: str, why: str) -> None:
    found = cuda.bandwidth([sys.executable, "-S", "-c", code])
    assert found["best"] is None and why in found["why"]


def test_a_probe_that_hangs_or_is_not_there_is_given_up() -> None:
    hanging = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    assert "did not answer within 0.2 s" in cuda.bandwidth(hanging, timeout_s=0.2)["why"]
    assert "could not be started" in cuda.bandwidth(["/no/such/program"])["why"]
    good = [sys.executable, "-S", "-c", "print('{\"best\": 2.0}')"]
    assert cuda.bandwidth(good) == {"best": 2.0}


@pytest.mark.parametrize("best", ["NaN", "Infinity", "-1", "0", '"fast"', "true", "[]"])
def test_a_bandwidth_that_is_none_is_a_reason(best: str) -> None:
    text = f'{{"best": {best}}}'
    found = cuda.bandwidth([sys.executable, "-S", "-c", f"print({text!r})"])
    assert found["best"] is None and "gave no answer" in found["why"]


def test_what_is_no_text_is_no_answer() -> None:
    found = cuda.bandwidth([sys.executable, "-S", "-c", "import os; os.write(1, bytes([255, 254]))"])
    assert found["best"] is None and "without an answer" in found["why"]
