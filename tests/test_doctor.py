"""The doctor's verdicts; nothing here measures or reaches a network."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import doctor
from harness.meters.bandwidth import MIB, Bandwidth
from harness.meters.contention import Snapshot, contention
from harness.meters.rapl import RaplMeter


def powercap(root: Path, **counters: int) -> Path:
    for number, (name, value) in enumerate(counters.items()):
        folder = root / f"intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(name.replace("_", "-"))
        (folder / "energy_uj").write_text(str(value))
    return root


def gpu_meter(**domains: str) -> Any:
    why = "" if domains else "NVML does not start"
    return SimpleNamespace(domains=domains, why=why, method="nvml", resolution_s=0.1, gpus=())


def test_energy_says_what_is_read_how_in_which_steps_and_what_it_covers(tmp_path: Path) -> None:
    rapl = RaplMeter(powercap(tmp_path, package_0=5, package_1=6))
    check = doctor.energy(rapl, gpu_meter(gpu="H100, the whole board"))
    assert (check.status, check.why, check.remedy) == ("ok", "", "")
    assert check.found == (
        "package-0 (rapl, steps of 0.001 s, processor package-0), "
        "package-1 (rapl, steps of 0.001 s, processor package-1), gpu (nvml, steps of 0.1 s, H100, the whole board)"
    )


def test_energy_without_a_counter_names_a_meter_of_ones_own(tmp_path: Path) -> None:
    check = doctor.energy(RaplMeter(tmp_path / "none"), gpu_meter())
    assert check.status == "missing" and "is missing" in check.why and "NVML does not start" in check.why
    assert "never ranked" in check.why and "energy: {meter: command" in check.remedy and "t_s,watts" in check.remedy


def test_energy_names_the_one_command_that_makes_rapl_readable(tmp_path: Path) -> None:
    def refuse(path: Path) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return path.read_text()

    rapl = RaplMeter(powercap(tmp_path, package_0=5), read_text=refuse)
    command = "sudo chmod -R a+r /sys/class/powercap/intel-rapl*/"
    alone = doctor.energy(rapl, gpu_meter())
    assert alone.status == "missing" and alone.remedy.startswith(f"{command}; or a meter of your own")
    beside = doctor.energy(rapl, gpu_meter(gpu="H100, the whole board"))
    assert (beside.status, beside.remedy) == ("limited", command)


def test_contention_verdicts() -> None:
    def seen(**end: float) -> dict[str, Any]:
        start = {"busy_s": 0.0, "own_s": 0.0, "steal_s": 0.0, "psi_some_us": 0}
        return contention(Snapshot(0, **start), Snapshot(500_000_000, **{**start, **end}), 2, 2)  # type: ignore[arg-type]

    assert doctor.quiet_of(seen()).status == "ok"
    busy = doctor.quiet_of(seen(busy_s=0.5))
    assert busy.status == "limited" and "others 50%" in busy.found
    assert doctor.quiet_of(contention(Snapshot(0), Snapshot(1), 2, 2)).status == "missing"


def test_quiet_watches_for_the_asked_time() -> None:
    waits: list[float] = []
    assert doctor.quiet(0.5, waits.append).name == "contention" and waits == [0.5]


@pytest.mark.parametrize(("enough", "status"), [(True, "ok"), (False, "limited"), (None, "limited")])
def test_bandwidth_verdicts(monkeypatch: pytest.MonkeyPatch, enough: bool | None, status: str) -> None:
    seen = Bandwidth(20e9, 18e9, 9, 1024 * MIB, None if enough is None else 300 * MIB, enough, 2)
    monkeypatch.setattr("harness.meters.bandwidth.bandwidth", lambda **_: seen)
    check = doctor.bandwidth()
    assert check.status == status and "20.0 GB/s best" in check.found and "1024 MiB" in check.why


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (urllib.error.URLError(OSError("Name or service not known")), "missing"),
        (TimeoutError("timed out"), "missing"),
        (urllib.error.HTTPError("u", 401, "no", {}, io.BytesIO()), "ok"),  # type: ignore[arg-type]
    ],
)
def test_hub_never_raises(monkeypatch: pytest.MonkeyPatch, error: Exception, status: str) -> None:
    limits: list[float] = []

    def refuse(request: urllib.request.Request, timeout: float) -> None:
        assert request.get_method() == "HEAD"
        limits.append(timeout)
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    check = doctor.hub()
    assert check.status == status and limits == [2.0]


def test_tools_that_are_missing_name_a_remedy() -> None:
    for check in (doctor.compiler(lambda _: None), doctor.sandbox(lambda _: None)):
        assert check.status == "missing" and check.remedy
    assert doctor.compiler(lambda name: f"/usr/bin/{name}").found == "/usr/bin/c++"
    assert doctor.sandbox(lambda name: f"/usr/bin/{name}").status == "ok"


def test_data_folder(tmp_path: Path) -> None:
    assert doctor.data("").status == "limited"
    assert doctor.data(str(tmp_path / "none")).status == "missing"
    assert doctor.data(str(tmp_path)).status == "limited"
    (tmp_path / "mmlu" / "cais_mmlu").mkdir(parents=True)
    assert doctor.data(str(tmp_path)).status == "ok"


def test_disk_looks_at_the_first_folder_that_exists(tmp_path: Path) -> None:
    check = doctor.disk(tmp_path / "not" / "yet")
    assert check.status in ("ok", "limited") and str(tmp_path / "not" / "yet") in check.found


def test_gpu_verdicts() -> None:
    none: Any = SimpleNamespace(gpus=(), why="NVML does not start", driver=None)
    assert doctor.gpu(none).status == "missing" and doctor.gpu(none).why == "NVML does not start"
    one: Any = SimpleNamespace(gpus=[SimpleNamespace(name="H100", memory_bytes=80 << 30)], why="", driver="570")
    assert doctor.gpu(one).found == "H100 (80 GiB)"


def test_diagnose_covers_everything_in_plain_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "quiet", lambda: doctor.Check("contention", "ok", "quiet"))
    monkeypatch.setattr(doctor, "bandwidth", lambda: doctor.Check("bandwidth", "ok", "20 GB/s"))
    monkeypatch.setattr(doctor, "hub", lambda: doctor.Check("hub", "missing", "not reachable"))
    rows = doctor.as_dicts(doctor.diagnose(tmp_path))
    names = {row["name"] for row in rows}
    assert names == {
        *("cores", "memory", "contention", "bandwidth", "frequency", "energy", "GPU"),
        *("disk", "hub", "compiler", "sandbox", "engines", "data"),
    }
    assert all(set(row) == {"name", "status", "found", "why", "remedy"} for row in rows)
    assert all(row["status"] in ("ok", "limited", "missing") and row["found"] for row in rows)
    json.dumps(rows, allow_nan=False)
