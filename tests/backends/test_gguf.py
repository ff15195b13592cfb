from __future__ import annotations

import random
import struct

import pytest

from harness.backends.llama_cpp.gguf import read_header
from harness.backends.llama_cpp.quantize import check_type, estimate_bytes, file_type
from harness.errors import InputError

from .conftest import gguf_bytes


def test_header_is_read(gguf_file):
    path = gguf_file(
        metadata={"general.architecture": "llama", "llama.block_count": 2, "general.file_type": 1},
        tensors=(("token_embd.weight", (4, 8), 1), ("output_norm.weight", (4,), 0)),
    )
    header = read_header(path)
    assert (header.architecture, header.arch("block_count"), file_type(header)) == ("llama", 2, "f16")
    assert [(t.name, t.kind, t.elements, t.n_bytes) for t in header.tensors] == [
        ("token_embd.weight", "f16", 32, 64),
        ("output_norm.weight", "f32", 4, 16),
    ]
    assert [t.rows for t in header.tensors] == [8, 1]
    assert header.elements == 36 and header.main_kind == "f16"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"magic": b"GGML"}, "begins with b'GGML'; expected b'GGUF'"),
        ({"version": 9}, "GGUF version 9"),
        ({"data": False}, "its header needs .* cut short"),
        ({"tensors": ()}, "no tensors"),
        ({"metadata": {"split.count": 3}}, "one part of 3"),
    ],
)
def test_broken_files_are_named(gguf_file, settings, message):
    with pytest.raises(InputError, match=message):
        read_header(gguf_file(**settings))


def test_a_tensor_of_an_unknown_type_reaches_to_the_next(gguf_file):
    path = gguf_file(tensors=(("a.weight", (4, 8), 0), ("b.weight", (4, 8), 0)))
    data = bytearray(path.read_bytes())
    struct.pack_into(
        "<I", data, data.index(b"a.weight") + 8 + 4 + 2 * 8, 99
    )  # after the name, 4 bytes and 2 dimensions
    path.write_bytes(data)
    assert [(tensor.kind, tensor.n_bytes) for tensor in read_header(path).tensors] == [("type99", 128), ("f32", 128)]


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_header(tmp_path / "none.gguf")


def test_empty_file(tmp_path):
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(InputError, match="expected b'GGUF'"):
        read_header(tmp_path / "empty.gguf")


def test_every_truncation_is_an_input_error(tmp_path):
    whole = gguf_bytes(metadata={"general.architecture": "llama", "llama.block_count": 2})
    path = tmp_path / "cut.gguf"
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(InputError):
            read_header(path)


def test_random_bytes_never_crash_the_reader(tmp_path):
    rng, path = random.Random(4), tmp_path / "noise.gguf"
    for _ in range(300):
        path.write_bytes(b"GGUF\3\0\0\0" + rng.randbytes(rng.randrange(400)))
        with pytest.raises(InputError):
            read_header(path)


def test_types_are_checked():
    assert check_type("Q4_K_M") == "q4_k_m"
    with pytest.raises(InputError, match="importance matrix"):
        check_type("iq2_xxs")
    with pytest.raises(InputError, match="Did you mean 'q4_k_m'"):
        check_type("q4_km")


def test_size_estimate_is_above_what_the_weights_need(gguf_file):
    header = read_header(gguf_file(tensors=(("blk.0.ffn_up.weight", (1024, 1024), 0),)))
    assert estimate_bytes(header, "f16") >= 1024 * 1024 * 2
    assert estimate_bytes(header, "f16") > estimate_bytes(header, "q8_0") > estimate_bytes(header, "q4_0")


@pytest.mark.parametrize(
    "metadata",
    [{"split.count": "abc"}, {"general.alignment": "x"}],
    ids=str,
)
def test_counts_that_are_none_are_damage(gguf_file, metadata):
    with pytest.raises(InputError, match="damaged GGUF header"):
        read_header(gguf_file(metadata=metadata))


def test_arrays_in_arrays_without_end_are_refused(tmp_path):
    key = b"general.x"
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key + struct.pack("<I", 9)
    path = tmp_path / "deep.gguf"
    path.write_bytes(out + struct.pack("<IQ", 9, 1) * 5000)
    with pytest.raises(InputError, match="arrays nested deeper than 4"):
        read_header(path)
