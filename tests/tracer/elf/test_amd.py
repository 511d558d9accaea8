"""Resources of AMD code objects; the expected numbers are what `llvm-readelf --notes` printed."""

import struct
from pathlib import Path

import pytest

from tests.support.elf_listing import kernel_resources

BINARIES = Path(__file__).parent / "binaries"


def kernels_of(path):
    return {kernel.name: kernel for kernel in kernel_resources(path)}


@pytest.mark.parametrize(
    ("machine", "vector", "scalar"),
    [
        ("gfx90a", (25, 3, 2, 3), (6, 6, 7, 32)),
        ("gfx942", (25, 3, 2, 4), (8, 11, 14, 32)),
    ],
)
def test_registers_lds_and_limits(machine, vector, scalar):
    kernels = kernels_of(BINARIES / f"kernels_{machine}.co")
    assert list(kernels) == ["accumulates", "promised", "scale", "spilled"]
    assert tuple(kernel.registers for kernel in kernels.values()) == vector
    assert tuple(kernel.sgprs for kernel in kernels.values()) == scalar
    assert {kernel.architecture for kernel in kernels.values()} == {machine}
    assert {kernel.lanes_per_warp for kernel in kernels.values()} == {64}
    assert kernels["promised"].shared_static_bytes == 400
    assert kernels["promised"].required_threads == (64, 2, 1)
    assert kernels["promised"].max_threads == 128
    assert kernels["spilled"].local_bytes == 132
    assert kernels["scale"].parameters == ((0, 8), (8, 8), (16, 4))


@pytest.mark.parametrize("machine", ["gfx90a", "gfx942"])
def test_accumulation_registers(machine):
    """LLVM 14 does not list them: they are what lies behind the descriptor's accumulation offset."""
    kernels = kernels_of(BINARIES / f"kernels_{machine}.co")
    assert {name: kernel.agprs for name, kernel in kernels.items()} == {
        "accumulates": 21,
        "promised": 0,
        "scale": 0,
        "spilled": 0,
    }


def test_descriptor_alone_gives_the_allocated_granules(tmp_path):
    """Without the metadata note the counts are those that the hardware allocates: granules of 8 on gfx90a."""
    data = (BINARIES / "kernels_gfx90a.co").read_bytes()
    owner = struct.pack("<I", 32) + b"AMDGPU\0"
    assert data.count(owner) == 1
    stripped = tmp_path / "stripped.co"
    stripped.write_bytes(data.replace(owner, struct.pack("<I", 99) + b"AMDGPU\0"))
    kernels = kernels_of(stripped)
    assert {name: kernel.registers for name, kernel in kernels.items()} == {
        "accumulates": 32,
        "promised": 8,
        "scale": 8,
        "spilled": 8,
    }
    assert kernels["promised"].shared_static_bytes == 400
    assert kernels["spilled"].local_bytes == 132
    assert kernels["promised"].required_threads is None
    assert kernels["accumulates"].lanes_per_warp == 64
