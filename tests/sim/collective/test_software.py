"""What software does today: every byte comes once to its receive buffer, and is added once by its owner."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective.check import follow
from sim.collective.chunks import even_chunks
from sim.collective.software import COPY_ENGINES, DECOMPOSED, FLUX, OVERLAPS, scattered
from sim.collective.space import Send
from sim.hw.request import Op, Stream
from sim.run.gpus_run import CollectiveRun
from sim.run.software import AG_COPIES, FLUX_GATHER, SoftwareRun
from sim.spec import Topology
from tests.support.programs import small_preset
from tests.support.t3_cases import FOUR_WARPS, TILE, fp16_problem
from tracer.gemm.source import GemmSource
from traces.errors import UserError

M, N, K = 256, 128, 32
D = M * N * 2
SLOW_LINK = "link.GB_per_s=2", "link.egress_fifo=8"
SOURCE = GemmSource(fp16_problem(M, N, K), TILE)


def software(kind, gpus, topology="switch", *overrides, explicit=False, source=SOURCE):
    chunks = even_chunks(source.tiles, gpus)
    preset = small_preset(f"link.topology={topology}", *overrides)
    return SoftwareRun(preset=preset, source=source, chunks=chunks, kind=kind, explicit=explicit).execute()


def shortest_ps(result, sent_bytes, egress=1):
    """Time of these bytes on the link, and its latency."""
    link = result.preset.machine.link
    return sent_bytes / (link.GB_per_s * link.efficiency * egress) * 1000 + link.latency_ps


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("kind", OVERLAPS)
def test_each_chunk_goes_once_to_its_owner(kind, gpus):
    result, own = software(kind, gpus), D // gpus
    assert result.exactly_once, result.wrong
    assert result.figures["simulated_gpus"] == 1
    assert result.link_bytes == D - own
    assert result.dram_bytes[Stream.COMPUTE_WRITE] == (own if kind == FLUX else D)
    assert result.dram_bytes[Stream.COMM_READ] == (0 if kind == FLUX else D - own)
    assert result.dram_bytes[Stream.COMM_WRITE] == (gpus - 1) * own
    assert result.time_ps > shortest_ps(result, D - own)


@pytest.mark.parametrize("kind", [*OVERLAPS, FLUX_GATHER, AG_COPIES])
def test_one_gpu_moves_what_each_of_all_moves(kind):
    one, every = software(kind, 4, "fully_connected"), software(kind, 4, "fully_connected", explicit=True)
    assert one.exactly_once and every.exactly_once
    assert (one.figures["simulated_gpus"], every.figures["simulated_gpus"]) == (1, 4)
    assert one.link_bytes == every.link_bytes
    written = slice(Stream.COMPUTE_WRITE, None)
    assert one.dram_bytes[written].tolist() == every.dram_bytes[written].tolist()
    assert one.time_ps == pytest.approx(every.time_ps, rel=0.1)  # "every" is the slowest


@pytest.mark.parametrize("topology", ["ring", "switch"])
def test_copy_engines_gather_each_chunk_once(topology):
    result, own = software(AG_COPIES, 4, topology), D // 4
    assert result.exactly_once, result.wrong
    assert result.dram_bytes[[Stream.COMM_READ, Stream.COMM_WRITE]].tolist() == [3 * own, 3 * own]
    assert result.link_bytes == 3 * own and result.time_ps > shortest_ps(result, 3 * own)


def test_a_fused_gemm_keeps_all_links_busy_at_once():
    """Its time is that of the bytes on one link. Chunk after chunk it would be the sum over three links."""
    source = GemmSource(fp16_problem(1024, 256, K), TILE)
    preset = small_preset("link.topology=fully_connected", *SLOW_LINK)
    result = SoftwareRun(preset=preset, source=source, chunks=even_chunks(source.tiles, 4), kind=FLUX).execute()
    assert result.exactly_once, result.wrong
    bytes_of_a_link = source.problem.output_bytes // 4
    assert 1.0 < result.time_ps / shortest_ps(result, bytes_of_a_link) < 1.5


@pytest.mark.parametrize(("engines", "links"), [(3, 3), (1, 1)])
def test_as_many_links_are_busy_as_there_are_copy_engines(engines, links):
    """A copy to one GPU is the work of one engine, so three copies need three."""
    result = software(AG_COPIES, 4, "fully_connected", f"dma.engines={engines}", *SLOW_LINK)
    assert result.exactly_once, result.wrong
    shortest = shortest_ps(result, 3 * D // 4 // links)
    assert shortest < result.time_ps < 1.2 * shortest


def test_chunks_for_different_gpus_are_copied_at_once():
    """The links are slow: three chunks take little longer than the last one, which comes when the GEMM is through."""
    together, one = (software(COPY_ENGINES, 4, "fully_connected", f"dma.engines={n}", *SLOW_LINK) for n in (3, 1))
    chunk_ps = shortest_ps(together, D // 4)
    assert chunk_ps < together.time_ps < 1.5 * chunk_ps and 3 * chunk_ps < one.time_ps


def test_tiles_wait_for_their_rows_of_a():
    """The GEMM ends after the last rows have come, and rows cross the link once."""
    result, a_bytes = software(FLUX_GATHER, 4), M * K * 2
    assert result.exactly_once, result.wrong
    assert result.link_bytes == 3 * a_bytes // 4
    assert result.time_ps > shortest_ps(result, 3 * a_bytes // 4)
    late = software(FLUX_GATHER, 4, "switch", "dma.start_ps=9000000")
    assert late.time_ps - result.time_ps == pytest.approx(9_000_000, rel=0.2)


def test_copies_of_software_wait_for_no_kernel():
    """A command for a copy engine costs `dma.start_ps`, whatever the launch of a kernel takes."""
    launched = software(AG_COPIES, 4, "switch", "dispatch.launch_ps=4000000")
    assert launched.time_ps == software(AG_COPIES, 4).time_ps


def test_the_owner_reads_every_sum_and_writes_one():
    preset, chunks = small_preset("link.topology=switch"), even_chunks(SOURCE.tiles, 4)
    result = CollectiveRun(preset=preset, source=SOURCE, chunks=chunks, kind="local_reduce").execute()
    assert result.exactly_once, result.wrong
    assert (result.dram_bytes[Stream.COMM_READ], result.dram_bytes[Stream.COMM_WRITE]) == (D, D // 4)
    assert result.link_bytes == 0


def test_what_starts_cost():
    """A GEMM of its own waits for the end of the one before; a copy that software starts begins later."""
    plain = {kind: software(kind, 4).time_ps for kind in OVERLAPS}
    gap = software(DECOMPOSED, 4, "switch", "dispatch.gap_ps=5000000").time_ps
    assert gap - plain[DECOMPOSED] == pytest.approx(3 * 5_000_000, rel=0.2)
    for kind, field in ((DECOMPOSED, "start_ps"), (COPY_ENGINES, "start_ps"), (COPY_ENGINES, "setup_ps")):
        late = software(kind, 4, "switch", f"dma.{field}=7000000").time_ps
        assert 3_000_000 < late - plain[kind] < 8_000_000
    launched = software(COPY_ENGINES, 4, "switch", "dispatch.launch_ps=9000000").time_ps
    assert launched - plain[COPY_ENGINES] == pytest.approx(9_000_000, rel=0.05)
    assert software(FLUX, 4, "switch", "dma.start_ps=7000000").time_ps == plain[FLUX]


@pytest.mark.parametrize(
    "given", ["entries=1", "wavefronts=2", "counter_bits=8", "granularity=wavefront", "latency_ps=900000"]
)
def test_flags_of_software_have_no_limit_of_the_tracker(given):
    source = GemmSource(SOURCE.problem, FOUR_WARPS)
    limited = software(COPY_ENGINES, 4, "switch", "tracker.ways=1", f"tracker.{given}", source=source)
    assert limited.time_ps == software(COPY_ENGINES, 4, source=source).time_ps


@pytest.mark.parametrize("kind", OVERLAPS)
def test_a_ring_has_no_link_to_the_owner(kind):
    with pytest.raises(UserError, match=f"{kind}: found topology ring, .* allowed are link.topology = fully_connected"):
        software(kind, 4, "ring")
    assert software(kind, 2, "ring").exactly_once


def test_a_gemm_whose_shares_nobody_would_add_is_refused():
    source = GemmSource(SOURCE.problem, replace(SOURCE.kernel, split_k=2, tile_k=16))
    run = SoftwareRun(
        preset=small_preset("link.topology=switch"), source=source, chunks=even_chunks(source.tiles, 4), kind=FLUX
    )
    with pytest.raises(UserError, match="kernel split_k = 2"):
        run.execute()


def flux_regions():
    plans = [
        scattered(FLUX, SOURCE.output_tiles(), even_chunks(SOURCE.tiles, 4), g, Topology.SWITCH)[0] for g in range(4)
    ]
    return [list(plan.regions) for plan in plans], plans[0].buffers


@pytest.mark.parametrize(
    ("send", "words"),
    [
        (Send(3, Op.WRITE, slot=1), "comes twice to receive buffer 1: one would overwrite the other"),
        (Send(3, Op.WRITE), "is stored and gets other contributions"),
        (Send(2, Op.WRITE, slot=2), "waits for 4 contributions .* but 3 come|expects nothing|but 5 come"),
    ],
)
def test_a_chunk_that_would_be_lost_or_overwritten_is_refused(send, words):
    regions, buffers = flux_regions()
    assert np.all(follow(regions, buffers).stored >= 0)
    regions[1][0] = replace(regions[1][0], to=(send,))
    with pytest.raises(UserError, match=words):
        follow(regions, buffers)


def test_an_update_of_a_receive_buffer_is_refused():
    regions, buffers = flux_regions()
    regions[1][0] = replace(regions[1][0], op=Op.UPDATE)
    with pytest.raises(UserError, match="is added to a receive buffer; allowed is a plain store"):
        follow(regions, buffers)


@pytest.mark.parametrize(("kind", "update"), [("all_gather", False), ("reduce_scatter", True)])
def test_plain_collectives_use_the_links_to_all_gpus_at_once(kind, update):
    """Four GPUs: three links, each with the rate of the one link to a switch."""
    source, times = GemmSource(fp16_problem(1024, 512, K), TILE), {}
    for topology in ("switch", "fully_connected"):
        preset = small_preset(f"link.topology={topology}", "link.GB_per_s=10", "collective.workgroups=2")
        chunks = even_chunks(source.tiles, 4)
        run = CollectiveRun(preset=preset, source=source, chunks=chunks, kind=kind, update=update)
        times[topology] = run.execute().time_ps
    assert times["fully_connected"] < 0.7 * times["switch"]
