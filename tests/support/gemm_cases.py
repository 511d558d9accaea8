"""Small GEMMs of tests: random ones for property tests, and the sites of a program."""

import itertools

import numpy as np
from hypothesis import strategies as st

from tracer.gemm.plan import Site
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource, Layout, TileOrder

SMALL = GemmProblem(32, 32, 96)
LOADS, STEP = ["LOAD_A", "LOAD_B"], ["FRAGMENTS", "TENSOR"]
layouts = st.sampled_from(Layout)


@st.composite
def gemms(draw):
    """A small problem of any layout and padding, and a kernel that can run it."""
    m, n, k = (draw(st.integers(1, 50)) for _ in range(3))
    element_bytes = draw(st.sampled_from([1, 2, 4]))
    a_layout, b_layout, c_layout = draw(layouts), draw(layouts), draw(layouts)
    pads = [draw(st.sampled_from([0, 0, 1, 3, 8])) for _ in range(3)]
    address = 1 << 20
    problem = GemmProblem(
        m,
        n,
        k,
        a_bytes=element_bytes,
        b_bytes=draw(st.sampled_from([1, 2, 4])),
        c_bytes=draw(st.sampled_from([2, 4])),
        a_layout=a_layout,
        b_layout=b_layout,
        c_layout=c_layout,
        lda=(k if a_layout == Layout.ROW else m) + pads[0],
        ldb=(n if b_layout == Layout.ROW else k) + pads[1],
        ldc=(n if c_layout == Layout.ROW else m) + pads[2],
        a_address=address + element_bytes * draw(st.integers(0, 9)),
        with_c=draw(st.booleans()),
    )
    tile_m, tile_n, tile_k = (draw(st.sampled_from([16, 32, 48])) for _ in range(3))
    pipeline_depth = draw(st.integers(1, 4))
    kernel = GemmKernel(
        tile_m,
        tile_n,
        tile_k,
        warps_m=draw(st.sampled_from([1, 2])),
        warps_n=draw(st.sampled_from([1, 2])),
        pipeline_depth=pipeline_depth,
        fragment_pieces=draw(st.sampled_from([1, 2, 4])) if pipeline_depth > 1 else 1,
        vector_bytes=draw(st.sampled_from([4, 8, 16])),
        copy=draw(st.sampled_from([Copy.LDG, Copy.ASYNC, Copy.LDG_SINGLE])),  # bulk copies have tests of their own
        epilogue=draw(st.sampled_from([Epilogue.DIRECT, Epilogue.STAGED])),
        order=draw(st.sampled_from(TileOrder)),
        group=draw(st.integers(1, 3)),
        split_k=draw(st.integers(1, max(1, -(-k // tile_k)))),
        persistent=draw(st.one_of(st.none(), st.integers(1, 5))),
        start_tile=draw(st.integers(0, -(-m // tile_m) * -(-n // tile_n) - 1)),
        lanes=draw(st.sampled_from([32, 64])),
        lane_bytes=draw(st.sampled_from([0, 4, 8, 16])),
        setup_out=draw(st.sampled_from([0, 9])),
        access=draw(st.sampled_from([0, 3])),
        registers=128,
    )
    return problem, kernel


def at_site(workgroup, *sites):
    return workgroup.events[np.isin(workgroup.events["pc"], [16 * site for site in sites])]


def program(kernel, problem=SMALL):
    """Sites of warp 0, repeated ones once."""
    workgroup = GemmSource(problem, kernel).workgroup(0)
    events = workgroup.events[: workgroup.first_event[1]]
    return [Site(pc // 16).name for pc, _ in itertools.groupby(events["pc"].tolist())]
