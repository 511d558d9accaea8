"""Figures of an operator: which kernels of its run count, the content of L2, launches, and what bounds it."""

import pytest

from sim.run.kernel_figures import L2State, dirty_share, figures_of, kernel_run, stores_of
from tests.support.programs import small_preset
from tracer.kernels import make_kernel, make_kernels

LAUNCHES = ("dispatch.launch_ps=5000000", "dispatch.gap_ps=3000000")


def figures(kernels, state, *changes):
    """(KernelFigures, the KernelResults of the operator's own kernels)."""
    preset = small_preset(*changes)
    result = kernel_run(preset, tuple(kernels), state, 0.0).execute()
    assert len(result.kernels) == {"dirty": 1, "used": 1, "warm": len(kernels)}.get(state, 0) + len(kernels)
    return figures_of(result, preset, tuple(kernels)), result.kernels[-len(kernels) :]


@pytest.mark.parametrize("state", [L2State.DIRTY, L2State.USED, L2State.WARM])
def test_the_time_is_from_the_launch_of_the_first_kernel_to_the_end_of_the_last(state):
    kernels = make_kernels("gelu:rows=64,cols=256,bias=1,fused=0")
    found, own = figures(kernels, state, *LAUNCHES)
    assert found.kernels == len(own) == 2
    assert found.launch_ns == 5000 + 3000
    assert found.time_ns == pytest.approx((own[-1].end_ps - own[0].start_ps) / 1000 + 5000, rel=0.01)
    single, _ = figures(kernels[:1], state, *LAUNCHES)
    assert single.launch_ns == 5000


@pytest.mark.parametrize("one", [True, False])
def test_the_vector_pipe_of_a_scheduler_bounds_or_its_pipes_do(one):
    changes = (f"cu.one_vector_pipe={str(one).lower()}", "cu.fma_warps_per_clk=0.05", *LAUNCHES[1:])
    found, _ = figures([make_kernel("gelu:rows=512,cols=1024")], L2State.EMPTY, *changes)
    assert found.bound_by == ("vector" if one else "fma")
    assert (found.busy["vector"] > 0.9, found.busy["fma"] > 0.9) == (one, not one)


def test_traffic_is_that_of_the_content_of_l2():
    """Reads of a quarter of L2. In a dirty L2 each line takes the place of one that must be written back, in a used L2
    every second one does."""
    size = small_preset().machine.l2.bytes // 4
    kernels = [make_kernel(f"stream:flow=read,buffer_bytes={size}")]
    moved = {state: figures(kernels, state)[0] for state in L2State}
    assert [moved[state].dram_read_bytes for state in L2State] == [size, size, size, 0]
    assert [moved[state].dram_write_bytes for state in (L2State.EMPTY, L2State.WARM)] == [0, 0]
    assert moved[L2State.DIRTY].dram_write_bytes == pytest.approx(size, rel=0.05)
    assert moved[L2State.USED].dram_write_bytes == pytest.approx(size / 2, rel=0.1)


@pytest.mark.parametrize(("dirty", "share"), [(0.0, 0.0), (0.1, 0.0), (0.12, 0.2), (0.35, 1 / 3), (0.42, 3 / 7)])
def test_of_a_used_l2_a_given_share_is_dirty(dirty, share):
    """Reads of twice L2 write back all that is dirty: the nearest share that a copy can have."""
    preset = small_preset()
    kernels = (make_kernel(f"stream:flow=read,buffer_bytes={2 * preset.machine.l2.bytes}"),)
    found = figures_of(kernel_run(preset, kernels, L2State.USED, 0.0, dirty).execute(), preset, kernels)
    assert found.dram_write_bytes == pytest.approx(share * preset.machine.l2.bytes, rel=0.05)


def test_the_dirty_share_is_that_of_the_written_data():
    read, copied = (make_kernels(f"{name}:rows=64,cols=256") for name in ("softmax", "bias"))
    for launches in ([(1, read)], [(5, read), (0, copied)]):
        assert dirty_share(launches) == 0.5
    gemm = make_kernels("gemm:m=64,n=64,k=448")
    assert dirty_share([(3, gemm)]) == pytest.approx(64 / (64 + 2 * 448))
    assert dirty_share([(3, gemm), (14, read)]) == pytest.approx((3 * 1 + 14 * 4) / (3 * 15 + 14 * 8))
    assert dirty_share([(1, make_kernels("gemm:m=64,n=64,k=8"))]) == 0.5  # at most
    assert dirty_share([(1, (make_kernel("stream:flow=write,buffer_bytes=512"),))]) == dirty_share([]) == 0.0
    assert [stores_of(share) for share in (0.0, 0.2, 1 / 3, 0.5)] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("text", "changes", "bound"),
    [
        ("stream:flow=read,buffer_bytes=1048576", (), "dram"),
        ("chase:buffer_bytes=65536,loads=50", (), "latency"),
        ("chase:buffer_bytes=65536,loads=50", ("dispatch.launch_ps=1000000000",), "launch"),
    ],
)
def test_what_bounds_an_operator(text, changes, bound):
    assert figures([make_kernel(text)], L2State.EMPTY, *changes)[0].bound_by == bound


def test_an_operator_in_a_used_l2_writes_back_as_much_as_it_writes():
    """Copies of twice L2: what they find dirty is as much as what they leave dirty."""
    size = 2 * small_preset().machine.l2.bytes
    found, _ = figures([make_kernel(f"stream:flow=copy,buffer_bytes={size}")], L2State.USED)
    assert found.dram_read_bytes == size
    assert found.dram_write_bytes == pytest.approx(size, rel=0.05)


def test_an_empty_and_a_used_l2_are_extrapolated():
    kernels = (make_kernel("stream:flow=read,buffer_bytes=4096"),)
    runs = {state: kernel_run(small_preset(), kernels, state, 0.02) for state in L2State}
    assert {state: (run.accuracy, run.flush_l2) for state, run in runs.items()} == {
        L2State.EMPTY: (0.02, True),
        L2State.DIRTY: (0.0, False),
        L2State.USED: (0.02, False),
        L2State.WARM: (0.0, False),
    }
