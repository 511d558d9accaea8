"""Partitions of the L2: where a request goes, near and far latency, what the CUs share, traffic, refused sizes."""

import pytest

from sim.counters import headline
from sim.host.gpu import Gpu
from sim.hw.noc import home_place
from sim.hw.partition import FAR, NEAR, home_of, is_far, route
from sim.hw.request import SECTOR_BYTES, Op
from sim.machine.build import build
from sim.presets.load import PresetError
from sim.run.one_gpu import simulate
from sim.spec import L2Sharing
from tests.support.fifo_bench import request
from tests.support.plain_records import kernel_view
from tests.support.programs import SMALL, TIGHT, compute, kernel, lines, load, random_kernel, small_preset, store
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.schema import Cache, Kind

FAR_CLK = 37
PAUSE_PS = 1_000_000
"""Between two kernels: the dispatcher sees free places a lookahead after they are free."""
HALVES = ("l2.partitions=2", f"l2.far_latency_clk={FAR_CLK}")
SHARINGS = {
    L2Sharing.HOME: (*HALVES, "l2.sharing=home"),
    L2Sharing.COPIES: (*HALVES, "l2.sharing=copies"),
    L2Sharing.PRIVATE: ("l2.partitions=2", "l2.sharing=private"),
}
CAPACITY = ("hbm.capacity_bytes=16106127360",)
"""A multiple of a row in every bank of 1, 3 and 5 channels."""
READ = kernel([[[lines(Kind.LOAD, 1 << 20, 32, slot=1)]]], name="read")
WRITE = kernel([[[store((1 << 20) + 128 * k) for k in range(8)]]], name="write")
GEMM = GemmSource(GemmProblem(256, 256, 128), GemmKernel(64, 64, 32, 2, 2))


def twin_route(sharing, c, home, op, cache, banks=4, partitions=2):
    """The rules in the shortest words: (bank, far, bank at which data from memory arrive)."""
    per = banks // partitions
    own = c % partitions
    if sharing == L2Sharing.PRIVATE:
        return own * per + home, NEAR, own * per + home
    if home // per == own:
        return home, NEAR, home
    if sharing == L2Sharing.COPIES and op == Op.READ and cache != Cache.UNCACHED:
        return own * per + home % per, NEAR, home
    return home, FAR, home


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_request_goes_where_the_twin_says(sharing):
    noc = kernel_view(build(small_preset(*SHARINGS[sharing]).machine)[0].noc)[0]
    for c in range(4):
        for home in range(2 if sharing == L2Sharing.PRIVATE else 4):
            for op in Op:
                for cache in (Cache.DEFAULT, Cache.UNCACHED):
                    sent = kernel_view(request(op=op, cache=cache))[0]
                    bank, far = route(noc, c, home, sent)
                    assert (bank, far, home_of(noc, bank, home)) == twin_route(sharing, c, home, op, cache)
                    assert is_far(noc, bank, c) == (far == FAR)


class Probe:
    """One GPU, and kernels of which a single warp on a chosen CU does something."""

    def __init__(self, *settings):
        self.machine = small_preset("hbm.timing.REFI=0", "dispatch.workgroup_ps=0", *settings).machine
        self.gpu, self.now_ps = Gpu(self.machine), 0
        noc = kernel_view(self.gpu.node.noc)[0]
        self.near = next(line for line in range(1 << 20, 1 << 21, 128) if home_place(noc, line)[0] == 0)

    def run(self, cu, event):
        """Time from the start to the exit of the warp of this CU, in ps. The event's line has its home at bank 0."""
        before_ps = self.now_ps
        others = [[[compute()]]] * cu
        self.now_ps = self.gpu.run_kernel(kernel([*others, [[event]]]), before_ps, None) + PAUSE_PS
        return int(self.gpu.node.cus["last_exit_ps"][cu]) - before_ps

    def load(self, cu):
        return self.run(cu, load(self.near, slot=1))

    def total(self, name):
        counted = self.gpu.counted()
        return int(counted["copies" if name.startswith("copy") else "l2"][name].sum())

    def hbm_bytes(self, kind):
        return int(self.gpu.counted()["hbm"][f"{kind}_columns"].sum()) * SECTOR_BYTES


def far_ps(clocks, probe):
    return round(1e6 / probe.machine.noc.clock_MHz) * clocks


def test_a_far_line_takes_the_far_latency_both_ways():
    probe = Probe(*SHARINGS[L2Sharing.HOME])
    probe.load(0)
    near_ps = probe.load(0)
    assert probe.load(1) == near_ps + far_ps(2 * FAR_CLK, probe)
    assert probe.load(2) == near_ps, "CU 2 is in the partition of CU 0"
    assert probe.total("read_miss_sectors") == 4 and probe.total("read_hit_sectors") == 12
    assert int(probe.gpu.node.noc["far_requests"][0]) == int(probe.gpu.node.noc["far_answers"][0]) == 1


def test_a_copy_is_fetched_from_its_home_once_and_then_near():
    probe = Probe(*SHARINGS[L2Sharing.COPIES])
    probe.load(0)
    near_ps = probe.load(0)
    packet_clk = -(-128 // probe.machine.l2.far_bytes_per_clk)
    assert probe.load(1) == near_ps + far_ps(2 * FAR_CLK + packet_clk, probe)
    assert probe.load(1) == probe.load(3) == near_ps
    assert probe.hbm_bytes("read") == 128
    counts = [probe.total(name) for name in ("read_sectors", "read_hit_sectors", "copy_miss_sectors", "copy_requests")]
    assert counts == [20, 16, 4, 1]


def test_a_miss_of_a_copy_and_of_its_home_reads_memory_once():
    probe = Probe(*SHARINGS[L2Sharing.COPIES])
    first_ps = probe.load(1)
    assert probe.hbm_bytes("read") == 128 and probe.total("read_miss_sectors") == probe.total("copy_miss_sectors") == 4
    assert probe.load(0) == probe.load(1) < first_ps


def test_private_partitions_do_not_share():
    """Two CUs of each partition read one line in one kernel."""
    probe = Probe(*SHARINGS[L2Sharing.PRIVATE])
    probe.gpu.run_kernel(kernel([[[load(probe.near, slot=1)]]] * 4), 0, None)
    assert probe.hbm_bytes("read") == 256 and probe.total("read_sectors") == 16


@pytest.mark.parametrize("sharing", SHARINGS)
def test_private_partitions_are_written_back_and_dropped_at_the_end_of_a_kernel(sharing):
    """So a second kernel misses all 32 sectors, of which the first wrote 8. Its write-back counts as an eviction."""
    preset = small_preset(*SHARINGS[sharing])
    private = sharing == L2Sharing.PRIVATE
    for kept in (False, True):
        first, second = simulate(CommandSequence([WRITE, READ]), preset, flush_l2=not kept).kernels
        assert second.totals["hbm.read_columns"] == (24 if kept and not private else 32)
        assert first.totals["l2.flush_sectors"] == (0 if kept or private else 32)
        assert first.totals["l2.writeback_sectors"] == (32 if private else 0)
        assert first.totals["hbm.write_columns"] == (0 if kept and not private else 32)
        assert headline(first.totals)["dram_write_sectors"] == (32 if private else 0)


def test_the_write_back_of_private_partitions_is_in_the_time_of_the_kernel():
    """DRAM takes 56 lines more; in L2 they would be long before."""
    preset = small_preset(*SHARINGS[L2Sharing.PRIVATE])
    few, many = (
        simulate(CommandSequence([kernel([[[store((1 << 20) + 128 * k) for k in range(n)]]])]), preset).kernels[0]
        for n in (8, 64)
    )
    assert many.time_ps - few.time_ps > 56 * 128 / preset.peaks().dram_bytes_per_s * 1e12
    read = simulate(CommandSequence([READ]), preset).kernels[0]
    kept = simulate(CommandSequence([READ]), small_preset(), flush_l2=False).kernels[0]
    assert read.time_ps == kept.time_ps, "nothing to write back"
    shared = small_preset(*SHARINGS[L2Sharing.HOME])
    assert few.time_ps > 2 * simulate(CommandSequence([WRITE]), shared).kernels[0].time_ps


def test_a_memory_side_cache_that_writes_back_takes_the_lines_in_the_time_of_the_kernel():
    """They fit it, so that DRAM sees none: the time ends when the cache has taken the last one."""
    cache = ("msc.present=true", "msc.bytes=65536", "msc.ways=4", "msc.write_back=true")
    gpu = Gpu(small_preset(*SHARINGS[L2Sharing.PRIVATE], *cache).machine)
    end_ps = gpu.run_kernel(WRITE, 0, None)
    assert int(gpu.node.channels["bus_end_ps"].max()) == 0 and int(gpu.node.mscs["write_sectors"].sum()) == 32
    assert end_ps == gpu.node.mscs["next_ps"].max() > gpu.node.cus["last_exit_ps"].max()


@pytest.mark.parametrize("sharing", SHARINGS)
def test_stores_of_both_partitions_meet_at_the_home_or_stay_apart(sharing):
    probe = Probe(*SHARINGS[sharing])
    for cu in (0, 1):
        probe.run(cu, store(probe.near))
    probe.gpu.flush_l2()
    assert probe.hbm_bytes("write") == (256 if sharing == L2Sharing.PRIVATE else 128)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_gemm_reads_memory_once_per_cache(sharing):
    bare, parted = Probe(), Probe(*SHARINGS[sharing])
    for probe in (bare, parted):
        probe.gpu.run_kernel(GEMM, 0, None)
        probe.gpu.flush_l2()
    assert parted.total("read_sectors") == bare.total("read_sectors")
    ends = ("read_hit_sectors", "read_merged_sectors", "read_miss_sectors")
    assert sum(map(parted.total, ends)) == parted.total("read_sectors")
    caches = 2 if sharing == L2Sharing.PRIVATE else 1
    assert bare.hbm_bytes("read") < parted.hbm_bytes("read") + 1 <= caches * bare.hbm_bytes("read") + 1
    assert parted.hbm_bytes("write") == bare.hbm_bytes("write")


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("size", [SMALL, (*TIGHT, "cu.count=4")])
@pytest.mark.parametrize("seed", range(4))
def test_random_kernels_come_to_rest(sharing, size, seed):
    gpu = Gpu(small_preset(*SHARINGS[sharing], size=size).machine)
    now_ps = 0
    for k in range(2):
        one = random_kernel(2 * seed + k, workgroups=12, events=5, region=(1 << 20, 1 << 13))
        gpu.run_kernel(one, now_ps, None)
        now_ps = gpu.flush_l2()
    counted = gpu.counted()["l2"]
    ends = ("read_hit_sectors", "read_merged_sectors", "read_miss_sectors")
    assert sum(int(counted[name].sum()) for name in ends) == int(counted["read_sectors"].sum())


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("sharing", ["home", "copies", "private"])
def test_one_partition_runs_with_any_number_of_channels(channels, sharing):
    size = ("cu.count=3", f"hbm.channels={channels}", f"l2.banks={2 * channels}", f"l2.bytes={channels << 14}")
    gpu = Gpu(small_preset("l2.partitions=1", f"l2.sharing={sharing}", *CAPACITY, size=size).machine)
    gpu.run_kernel(GEMM, 0, None)
    gpu.flush_l2()
    assert gpu.counted()["hbm"]["write_columns"].sum() * SECTOR_BYTES == GEMM.problem.output_bytes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("l2.partitions=3",), r"cu.count: found 4, allowed is a multiple of l2.partitions = 3"),
        (("l2.partitions=4", "l2.far_latency_clk=9"), r"hbm.channels: found 2, allowed is a multiple of l2.partitions"),
        (("l2.partitions=4", "l2.sharing=private"), r"l2.banks: found 4, allowed is a multiple of .* = 8"),
        (("l2.partitions=2",), r"l2.far_latency_clk: found 0, allowed is so many clocks"),
        (("l2.partitions=4", "l2.sharing=copies", "hbm.channels=4"), r"l2.partitions: found 4, allowed is 2, as"),
        (("l2.sharing=shared",), r"l2.sharing.*home, copies, private"),
    ],
)
def test_partitions_that_do_not_divide_are_refused(settings, words):
    with pytest.raises(PresetError, match=words):
        small_preset(*settings)
