"""Resources of CUDA cubins; the expected numbers are what `ptxas -v` printed when the binaries were built."""

from pathlib import Path

import pytest

from tests.support.elf_listing import kernel_resources

BINARIES = Path(__file__).parent / "binaries"
SCALE = "_ZN7stencil5scaleIfEEvPT_PKS1_5Shapec"


def kernels_of(file):
    return {kernel.name: kernel for kernel in kernel_resources(BINARIES / file)}


@pytest.mark.parametrize(
    ("file", "architecture", "registers"),
    [
        ("kernels_sm90.cubin", "sm_90", {"bounded": 10, "promised": 8, "spilled": 12, SCALE: 12}),
        ("lines_sm90.cubin", "sm_90", {"bounded": 10, "promised": 8, "spilled": 12, SCALE: 12}),
        ("kernels_sm70.cubin", "sm_70", {"bounded": 12, "promised": 6, "spilled": 10, SCALE: 10}),
    ],
)
def test_architecture_and_registers_of_both_abis(file, architecture, registers):
    kernels = kernels_of(file)
    assert {name: kernel.registers for name, kernel in kernels.items()} == registers
    assert {kernel.architecture for kernel in kernels.values()} == {architecture}


@pytest.mark.parametrize(
    ("file", "static", "reserved"), [("kernels_sm90.cubin", 1424, 1024), ("kernels_sm70.cubin", 400, 0)]
)
def test_static_shared_memory_with_the_reserved_kilobyte(file, static, reserved):
    kernel = kernels_of(file)["bounded"]
    assert kernel.shared_static_bytes == static
    assert kernel.shared_reserved_bytes == reserved
    assert kernel.shared_variable_bytes == 400


@pytest.mark.parametrize("file", ["kernels_sm90.cubin", "kernels_sm70.cubin"])
def test_limits_barriers_stack_and_parameters(file):
    kernels = kernels_of(file)
    assert kernels["bounded"].max_threads == 128
    assert kernels["spilled"].max_threads is None
    assert {name: kernel.barriers for name, kernel in kernels.items()} == {
        "bounded": 1,
        "promised": 0,
        "spilled": 4,  # barrier number 3 makes four
        SCALE: 0,
    }
    assert kernels["spilled"].local_bytes == 128
    assert kernels["bounded"].local_bytes == 0
    assert kernels[SCALE].parameters == ((0, 8), (8, 8), (16, 16), (32, 1))
    assert [bank for bank, _ in kernels[SCALE].constant_bytes] == [0, 3]
    assert dict(kernels[SCALE].constant_bytes)[3] == 64
    assert kernels[SCALE].plain_name == "stencil::scale"


def test_exact_block_size():
    assert kernels_of("kernels_sm90.cubin")["promised"].required_threads == (64, 2, 1)
    assert kernels_of("kernels_sm70.cubin")["promised"].required_threads is None


def test_parameters_beyond_four_kilobytes():
    assert kernels_of("wide_sm90.cubin")["wide"].parameters == ((0, 4200), (4200, 8))
