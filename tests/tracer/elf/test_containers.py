"""Fat binaries and offload bundles, by themselves and inside host programs."""

import json
from pathlib import Path

import pytest

from tests.support.elf_listing import describe_elf, kernel_resources
from tracer.elf.names import plain_name
from traces.errors import UserError

BINARIES = Path(__file__).parent / "binaries"
FOUR = ["stencil::scale", "bounded", "promised", "spilled"]


def members(file):
    return [
        (m["source"], m["kind"], m["architecture"], m["compression"], [k["plain_name"] for k in m["kernels"]])
        for m in describe_elf(BINARIES / file)
    ]


@pytest.mark.parametrize(("file", "compression"), [("host_zstd.o", "zstd"), ("host_lz4.so", "lz4")])
def test_host_program_carries_every_architecture_and_lists_ptx(file, compression):
    assert members(file) == [
        (".nv_fatbin 1", "cubin", "sm_75", compression, FOUR),
        (".nv_fatbin 2", "cubin", "sm_90", compression, FOUR),
        (".nv_fatbin 3", "ptx", "compute_90", compression, []),
    ]


def test_member_of_a_host_program_equals_the_cubin():
    alone = {k.name: (k.registers, k.shared_static_bytes) for k in kernel_resources(BINARIES / "kernels_sm90.cubin")}
    for file in ("host_zstd.o", "host_lz4.so"):
        packed = [k for k in kernel_resources(BINARIES / file) if k.architecture == "sm_90"]
        assert {k.name: (k.registers, k.shared_static_bytes) for k in packed} == alone


def test_fat_binary_by_itself_and_relocatable_device_code():
    assert members("wide.fatbin") == [("entry 1", "cubin", "sm_75", "none", ["wide"])]
    assert [m[:3] for m in members("relocatable.o")] == [
        ("__nv_relfatbin 1", "cubin", "sm_90"),
        ("__nv_relfatbin 2", "ptx", "compute_90"),
    ]


@pytest.mark.parametrize(
    ("file", "compression", "architectures"),
    [("host_hip.o", "none", ["gfx908", "gfx90a"]), ("host_hip_zstd.o", "zstd", ["gfx90a", "gfx942"])],
)
def test_hip_program_carries_code_objects(file, compression, architectures):
    assert members(file) == [
        (f".hip_fatbin {number}", "code object", architecture, compression, ["stencil::scale"])
        for number, architecture in enumerate(architectures, 1)
    ]


def test_description_is_plain_json():
    described = describe_elf(BINARIES / "host_zstd.o")
    assert json.loads(json.dumps(described)) == json.loads(json.dumps(described, default=str))
    bounded = described[1]["kernels"][1]
    assert bounded["name"] == "bounded"
    assert bounded["parameters"] == [{"offset_bytes": 0, "size_bytes": 8}, {"offset_bytes": 8, "size_bytes": 4}]


def test_what_is_no_device_code_is_named(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a binary")
    with pytest.raises(UserError, match=r"notes\.txt: no ELF file"):
        kernel_resources(text)
    with pytest.raises(UserError, match="cannot be read"):
        kernel_resources(tmp_path / "missing.cubin")
    with pytest.raises(UserError, match="cannot be read"):
        kernel_resources(tmp_path)
    host = bytearray((BINARIES / "host_zstd.o").read_bytes().replace(b".nv_fatbin", b".xx_fatbin"))
    (tmp_path / "host.o").write_bytes(host)
    with pytest.raises(UserError, match="no device code"):
        kernel_resources(tmp_path / "host.o")


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("_Z5saxpyPfS_f", "saxpy"),
        ("_ZN7stencil5scaleIfEEvPT_PKS1_5Shapec", "stencil::scale"),
        ("_ZN12_GLOBAL__N_15innerEv", "(anonymous)::inner"),
        ("bounded", "bounded"),
        ("_ZN9truncated", "_ZN9truncated"),
        ("_Z", "_Z"),
    ],
)
def test_plain_names(mangled, plain):
    assert plain_name(mangled) == plain
