from __future__ import annotations

import ctypes
from importlib.metadata import version

import pytest

from harness import doctor
from harness.backends.llama_cpp import amx


@pytest.mark.parametrize(
    ("compiler", "broken"),
    [
        ("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0", True),
        ("GCC: (GNU) 10.2.1 20210130", True),
        ("GCC: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", True),
        ("GCC: (GNU) 11.5.0", False),
        ("GCC: (GNU) 12.4.0", False),
        ("GCC: (Ubuntu 13.2.0-23ubuntu4) 13.2.0", True),
        ("GCC: (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", False),
        ("GCC: (Debian 14.2.0-19) 14.2.0", False),
        ("clang version 17.0.6", False),
    ],
)
def test_compilers_that_break_amx(compiler, broken):
    assert amx.is_broken(compiler) is broken


def test_the_signal_stack_is_put_back(monkeypatch):
    if not amx.sys.platform.startswith("linux"):
        pytest.skip("Linux only")
    libc = ctypes.CDLL(None)

    def now():
        found = amx._Stack()
        assert libc.sigaltstack(None, ctypes.byref(found)) == 0
        return found.pointer, found.size

    before = now()
    with amx.without_tiles():
        assert now()[1] == amx._SMALL_STACK
    assert now()[1] in (before[1], 0) and (before[1] == 0 or now() == before)


def test_library_is_judged_by_the_compiler_it_names(tmp_path, monkeypatch):
    library = tmp_path / "libllama.so"
    (tmp_path / "libggml-cpu.so").write_bytes(b"\0GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0more\0")
    monkeypatch.setattr(amx.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(amx.sys, "platform", "linux")
    cpu = tmp_path / "cpuinfo"
    real = amx.Path
    monkeypatch.setattr(amx, "Path", lambda text: cpu if text == "/proc/cpuinfo" else real(text))
    cpu.write_text("flags : avx2 amx_tile amx_int8\n")
    assert "Debian 12.2.0" in amx.fault.__wrapped__(library)
    cpu.write_text("flags : avx2\n")
    assert amx.fault.__wrapped__(library) is None
    cpu.write_text("flags : avx2 amx_tile\n")
    (tmp_path / "libggml-cpu.so").write_bytes(b"\0GCC: (Debian 14.2.0-19) 14.2.0\0")
    assert amx.fault.__wrapped__(library) is None


def test_the_doctor_names_the_fault_and_a_remedy(monkeypatch):
    monkeypatch.setattr(doctor.amx, "installed_fault", lambda: "built by GCC 12.2.0, which miscompiles AMX")
    check = doctor.engines()
    assert check.status == "limited" and "GCC 12.2.0" in check.why
    assert "CC=clang-19" in check.remedy and f"llama-cpp-python=={version('llama-cpp-python')}" in check.remedy
    monkeypatch.setattr(doctor.amx, "installed_fault", lambda: None)
    assert doctor.engines().status == "ok"
