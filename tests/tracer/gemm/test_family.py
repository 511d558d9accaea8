"""GEMM kernels like those of a table of the library (`family`)."""

import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tracer.gemm.kernel import Copy
from tracer.gemm.raster import TileOrder
from tracer.kernels import make_kernel
from traces.errors import UserError

GEMM = "gemm:m=1024,n=2048,k=512,dtype=bf16"


def _kernel(preset, fields):
    return make_kernel(f"{GEMM},{fields}", gpu_facts(load_preset(preset).machine)).kernel


@pytest.mark.parametrize(
    ("preset", "family", "mac_cost"),
    [
        ("a100_80g", "sm80", 1.0),
        ("h100_sxm", "sm80", 1.59),  # instructions of Ampere on Hopper
        ("h100_sxm", "sm70", 1.59),
        ("b200", "sm80", 1.59),
        ("h100_sxm", "sm90", 1.0),
        ("b200", "sm90", 1.0),
        ("mi300x", "cdna3", 1.0),
    ],
)
def test_older_kernels_multiply_more_slowly_on_machines_with_warpgroups(preset, family, mac_cost):
    assert _kernel(preset, f"family={family},tile=128x128x64,warps=2x4,pipeline_depth=3").mac_cost == mac_cost


def test_a_family_says_how_a_kernel_loads():
    fields = "tile=128x128x64,warps=2x4,pipeline_depth=3"
    kernel = _kernel("h100_sxm", f"family=sm80,{fields}")
    assert (kernel.copy, kernel.fragment_pieces, kernel.warpgroup, kernel.cluster) == (Copy.ASYNC, 4, 1, 1)
    assert kernel.order == TileOrder.GROUPED
    kernel = _kernel("h100_sxm", f"family=sm90,{fields}")
    assert (kernel.copy, kernel.warpgroup, kernel.cluster) == (Copy.PRODUCER, 4, 2)
    assert _kernel("h100_sxm", f"family=sm90,{fields},order=row").order == TileOrder.ROW
    assert _kernel("h100_sxm", f"family=sm90,{fields},copy=bulk").copy == Copy.BULK


def test_a_family_needs_a_tile():
    with pytest.raises(UserError, match="family: found without tile"):
        make_kernel(f"{GEMM},family=sm80")


@pytest.mark.parametrize("preset", ["a100_80g", "mi300x"])
def test_bulk_copies_are_refused_before_the_run_where_there_are_none(preset):
    with pytest.raises(UserError, match="copy = producer: the machine has no bulk copies"):
        _kernel(preset, "family=sm90,tile=64x64x32,warps=2x4,pipeline_depth=3")


@pytest.mark.parametrize(("preset", "mac_cost"), [("h100_sxm", 1.59), ("a100_80g", 1.0)])
def test_the_librarys_own_choice_has_the_same_rate(preset, mac_cost):
    """Rows of 33 elements: on Hopper a kernel of Ampere."""
    kernel = make_kernel("gemm:m=64,n=33,k=33,pad=dense,dtype=bf16", gpu_facts(load_preset(preset).machine)).kernel
    assert (kernel.copy, kernel.mac_cost) == (Copy.ASYNC, mac_cost)
