"""How fast a GPU's memory is: a copy within it, through the CUDA driver alone. Knows nothing of models.

``python -m harness.meters.cuda`` prints the result as JSON. ``bandwidth`` runs that in a process of its own, so that
no driver, however old or ill, can break or hold up the one that asks.

A copy reads and writes each byte once: twice its size is counted. It comes close to what reading alone reaches, some
percent below. Device 0 is measured, of those that CUDA_VISIBLE_DEVICES leaves visible; of several GPUs that hold a
model's layers one after the other, one works at a time.

Source: CUDA driver API reference, https://docs.nvidia.com/cuda/cuda-driver-api/ (device, primary context, memory and
event management).
"""

from __future__ import annotations

import ctypes
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from harness.meters.bandwidth import MIB, Bandwidth

LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
PASSES, COPIES = 9, 4  # copies of one pass, so that starting them does not count
WANTED_BYTES, LEAST_BYTES = 1024 * MIB, 16 * MIB
TIMEOUT_S = 30.0
COUNTED = "bytes read and written by a copy within the device (2 x its size)"
_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE


class CudaError(Exception):
    """The driver is missing or refused, in words."""


def bandwidth(command: list[str] | None = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Bandwidth of the first visible GPU's memory as plain JSON: a ``Bandwidth``, or ``{"best": None, "why": ...}``.

    Args:
        command: What to run instead of this module, for tests.
        timeout_s: After this the process is ended.
    """
    try:
        done = subprocess.run(
            command or [sys.executable, "-m", "harness.meters.cuda"],
            capture_output=True, text=True, errors="replace", timeout=timeout_s, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _why(f"the CUDA driver did not answer within {timeout_s:g} s")
    except OSError as error:
        return _why(f"the probe could not be started: {error}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return _why(f"the probe ended without an answer: {last}")
    return found if isinstance(found, dict) and _usable(found) else _why("the probe gave no answer")


def _usable(found: dict[str, Any]) -> bool:
    """Whether an answer holds a bandwidth, or says why there is none."""
    best = found.get("best")
    if best is None:
        return bool(found.get("why"))
    return type(best) in (int, float) and math.isfinite(best) and best > 0


def measure(lib: Any = None) -> Bandwidth:
    """Best and median of 9 passes of copying within device 0.

    Args:
        lib: The CUDA driver library, or a stand-in; None loads it.

    Raises:
        CudaError: There is no driver or no GPU, or it refused.
    """
    driver = _Driver(_library() if lib is None else lib)
    device = driver.first_device()
    with ExitStack() as stack:
        stack.enter_context(driver.context(device))
        size = _size(driver.free_bytes())
        source, target = (stack.enter_context(driver.memory(size)) for _ in range(2))
        before, after = (stack.enter_context(driver.event()) for _ in range(2))

        def rate() -> float:
            driver.call("cuEventRecord", before, None)
            for _ in range(COPIES):
                driver.call("cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), None)
            driver.call("cuEventRecord", after, None)
            driver.call("cuEventSynchronize", after)
            milliseconds = ctypes.c_float()
            driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
            if not milliseconds.value > 0:
                raise CudaError("the driver's clock stood still during a copy")
            return 2 * COPIES * size / milliseconds.value * 1e3

        driver.call("cuMemsetD8_v2", source, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        rate()  # wakes the clocks
        rates = [rate() for _ in range(PASSES)]
    cache = driver.attribute(device, _L2_CACHE_SIZE)
    return Bandwidth(
        best=max(rates),
        median=statistics.median(rates),
        n=len(rates),
        array_bytes=size,
        cache_bytes=cache,
        enough=None if cache is None else size >= 4 * cache,
        threads=None,
        device=driver.name(device),
        counted=COUNTED,
        rates=tuple(rates),
    )


def _size(free_bytes: int) -> int:
    """Bytes of each of two arrays: 1 GiB, or an eighth of what is free, in whole MiB."""
    size = min(WANTED_BYTES, free_bytes // 8) // MIB * MIB
    if size < LEAST_BYTES:
        raise CudaError(f"{free_bytes // MIB} MiB of GPU memory are free; {8 * LEAST_BYTES // MIB} MiB are needed")
    return size


class _Driver:
    """The few calls that are needed, each checked."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self.call("cuInit", 0)

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the driver; anything but success is a CudaError that names it."""
        try:
            code = getattr(self._lib, name)(*args)
        except AttributeError as error:
            raise CudaError(f"the CUDA driver is too old: it has no {name}") from error
        if code:
            raise CudaError(f"{name}: {self._text(code)}")

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        known = self._lib.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value
        return (text.value or b"").decode(errors="replace") if known else f"CUDA error {code}"

    def first_device(self) -> ctypes.c_int:
        """The first visible device."""
        count, device = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value < 1:
            raise CudaError("the CUDA driver sees no GPU")
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        return device

    def name(self, device: ctypes.c_int) -> str:
        """What the device is called."""
        text = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def attribute(self, device: ctypes.c_int, number: int) -> int | None:
        """A positive attribute, or None where the device has none."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value if value.value > 0 else None

    def free_bytes(self) -> int:
        """Free memory of the present context's device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    @contextmanager
    def context(self, device: ctypes.c_int) -> Iterator[None]:
        """The device's primary context, made current."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self.call("cuCtxSetCurrent", context)
            yield
        finally:
            self.call("cuDevicePrimaryCtxRelease_v2", device)

    @contextmanager
    def memory(self, size: int) -> Iterator[ctypes.c_uint64]:
        """So many bytes of the device's memory."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        try:
            yield address
        finally:
            self.call("cuMemFree_v2", address)

    @contextmanager
    def event(self) -> Iterator[ctypes.c_void_p]:
        """A mark in the device's stream of work."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        try:
            yield event
        finally:
            self.call("cuEventDestroy_v2", event)


def _library() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError("no CUDA driver here")


def _why(text: str) -> dict[str, Any]:
    return {"best": None, "median": None, "n": 0, "why": text}


def main() -> None:
    """Print the result as JSON."""
    try:
        print(json.dumps(measure().as_dict()))
    except CudaError as error:
        print(json.dumps(_why(str(error))))


if __name__ == "__main__":
    main()
