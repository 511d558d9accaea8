"""Names of C++ kernels for people."""

import pytest

from tracer.elf.names import SHORT, short_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gemm_512x512x64", "gemm_512x512x64"),
        ("_Z8mult_gpuIfEvPT_S1_S1_ii", "mult_gpu"),
        ("_ZN7stencil5scaleIfEEvPT_", "stencil::scale"),
        ("k" * 20 + "_" + "x" * 20, "k" * 16 + "..." + "x" * 17),
    ],
)
def test_short_names(name, shown):
    assert short_name(name) == shown and len(shown) <= SHORT
