"""In-switch reduction and multicast: each byte is added once, and the traffic is that of the closed form."""

import pytest

from sim.collective import nvls
from sim.collective.chunks import even_chunks
from sim.collective.plans import planned
from sim.collective.space import OUTPUT, Buffer, Region, Send
from sim.collective.topology import AddingSwitch
from sim.hw.request import Op, Stream
from sim.run.gpus_run import CollectiveRun
from sim.run.software import FUSED_IN_SWITCH, SoftwareRun
from sim.spec import Topology
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from traces.errors import UserError

M, N, K = 256, 128, 32
D = M * N * 2
SOURCE = GemmSource(fp16_problem(M, N, K), TILE)
BOTH = -1
SWITCH = ("link.topology=switch", "link.in_switch=true")


def run_of(kind, gpus, *overrides, explicit=False):
    preset, chunks = small_preset(*(overrides or SWITCH)), even_chunks(SOURCE.tiles, gpus)
    make = SoftwareRun if kind == FUSED_IN_SWITCH else CollectiveRun
    return make(preset=preset, source=SOURCE, chunks=chunks, kind=kind, explicit=explicit)


def link_down(result):
    """Payload that crosses the link to one GPU."""
    return result.kernels[0].totals["link.arrived_bytes"]


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize(
    ("kind", "up", "down", "reads", "writes"),
    [
        (nvls.REDUCE_SCATTER, D, 1, D, 1),
        (nvls.ALL_GATHER, 1, D, 1, D),
        (nvls.ALL_REDUCE, BOTH, BOTH, BOTH, BOTH),
        (FUSED_IN_SWITCH, D, 1, None, 1),
    ],
)
def test_traffic_is_that_of_the_closed_form(kind, up, down, reads, writes, gpus):
    """1 stands for the chunk of a GPU, BOTH for the buffer and that chunk."""
    result = run_of(kind, gpus).execute()
    own = D // gpus
    up, down, reads, writes = ({1: own, BOTH: D + own}.get(size, size) for size in (up, down, reads, writes))
    assert result.exactly_once, result.wrong
    assert result.figures["simulated_gpus"] == 1
    assert (result.link_bytes, link_down(result)) == (up, down)
    added = 0 if kind == nvls.ALL_GATHER else D - own  # all parts of its chunk but the last
    assert result.totals["link.added_bytes"] == added
    if reads is not None:
        assert result.dram_bytes[Stream.COMM_READ] == reads
    assert result.dram_bytes[Stream.COMM_WRITE] == writes
    assert result.dram_bytes[Stream.COMPUTE_WRITE] == 0


@pytest.mark.parametrize("kind", [nvls.REDUCE_SCATTER, nvls.ALL_GATHER, nvls.ALL_REDUCE, FUSED_IN_SWITCH])
def test_one_gpu_moves_what_each_of_all_moves(kind):
    one, every = run_of(kind, 4).execute(), run_of(kind, 4, explicit=True).execute()
    assert one.exactly_once and every.exactly_once, (one.wrong, every.wrong)
    assert (one.figures["simulated_gpus"], every.figures["simulated_gpus"]) == (1, 4)
    assert one.link_bytes == every.link_bytes
    assert one.dram_bytes[Stream.COMM_WRITE] == every.dram_bytes[Stream.COMM_WRITE]
    assert one.time_ps == pytest.approx(every.time_ps, rel=0.1)  # "every" is the slowest


def test_copies_leave_while_parts_still_come():
    """The links carry the sums down while they carry parts up: an all-reduce is shorter than both halves."""
    source = GemmSource(fp16_problem(2048, 512, K), TILE)
    times = {}
    for kind in (nvls.REDUCE_SCATTER, nvls.ALL_GATHER, nvls.ALL_REDUCE):
        machine = (*SWITCH, "link.GB_per_s=20", "collective.workgroups=2")
        chunks, preset = even_chunks(source.tiles, 4), small_preset(*machine)
        times[kind] = CollectiveRun(preset=preset, source=source, chunks=chunks, kind=kind).execute().time_ps
    halves = times[nvls.REDUCE_SCATTER] + times[nvls.ALL_GATHER]
    assert max(times.values()) == times[nvls.ALL_REDUCE] < 0.75 * halves


@pytest.mark.parametrize("overrides", [("link.topology=switch",), ("link.topology=ring", "link.in_switch=true")])
def test_a_machine_without_such_a_switch_is_refused(overrides):
    with pytest.raises(UserError, match=r"link.in_switch: found .* with link.topology = .*; allowed for NVLS is true"):
        run_of(nvls.ALL_GATHER, 4, *overrides).execute()


@pytest.mark.parametrize("topology", [*Topology, AddingSwitch()])
@pytest.mark.parametrize(
    "region",
    [
        Region(0, 4, to=(1,), op=Op.COMBINE),
        Region(0, 4, op=Op.UPDATE, expects=1, sends=(Send(1, Op.COMBINE),)),
        Region(0, 4, op=Op.READ),
        Region(0, 4, to=(Send(1),), op="update"),
    ],
)
def test_only_a_switch_that_adds_combines_and_stores_do_not_read(region, topology):
    chunks, buffers = even_chunks(SOURCE.tiles, 4), [Buffer(OUTPUT, SOURCE.output_tiles())]
    if isinstance(topology, AddingSwitch) and Op.COMBINE in (region.op, *(send.op for send in region.sends)):
        planned(buffers, chunks, 0, topology, [region])
        return
    with pytest.raises(UserError, match=r"region 0: op: found .*, allowed are Op.WRITE, Op.UPDATE"):
        planned(buffers, chunks, 0, topology, [region])
