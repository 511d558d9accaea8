"""Latency of each level: the sum of its parts, written out; latencies and bandwidths are those measured, and claims."""

import numpy as np
import pytest

from sim.machine.wiring import lookahead_ps
from sim.presets import load_preset
from tracer.streams import Flow
from traces.command.document import table_line
from traces.units import period_ps
from validation.against.gpu_rows import CHASES
from validation.against.microbenchmarks import (
    BANDWIDTH_TOLERANCE,
    FAR_COLUMN,
    HBM,
    L1_HIT,
    L2_COLUMN,
    L2_HIT,
    LATENCY_TOLERANCE,
    MACHINES,
    MICROBENCHMARKS,
    PAGES,
    SIDE_CACHE,
    SMALL_L2,
    STREAMS,
    bandwidths,
    cells,
    far_latency_ps,
    kind_of,
    latency_ps,
    latency_rows,
    measured,
    stream,
    stream_source,
)
from validation.claims.claim import load_claims

(PAGE,) = (page for page in PAGES if page.reference == MICROBENCHMARKS)


def clock_ps(preset):
    return round(1e6 / preset.machine.cu.clock_MHz)


def read_ports_clk(noc):
    """Clocks that a read's header and its answer (header and one sector) take at the narrower of their two ports."""
    request = -(-noc.header_bytes // min(noc.request_bytes_per_clk, noc.bank_bytes_per_clk))
    return request, -(-(noc.header_bytes + 32) // min(noc.response_bytes_per_clk, noc.bank_bytes_per_clk))


@pytest.mark.parametrize("name", ["v100", "accelsim_qv100", "t3_2024"])
def test_latency_is_the_sum_of_its_parts(name):
    preset = load_preset(name)
    m, clk_ps = preset.machine, clock_ps(preset)
    assert clk_ps == round(1e6 / m.noc.clock_MHz) == round(1e6 / m.l2.clock_MHz)
    request_clk, answer_clk = read_ports_clk(m.noc)
    assert latency_ps(preset, L1_HIT) == m.l1.latency_clk * clk_ps
    crossbar_clk = request_clk + m.noc.latency_clk + answer_clk + m.noc.latency_clk
    assert latency_ps(preset, L2_HIT) == (m.l1.latency_clk + crossbar_clk + m.l2.latency_clk) * clk_ps
    # A miss passes the L2 bank at once; the wait for the DRAM's clock edge makes the chain a multiple of its clock. On
    # average within a clock: some loads find a bank that is still closed.
    timing, dram_ps = m.hbm.timing, round(1e6 / m.hbm.clock_MHz)
    conflict_ps = (timing.RP + timing.RCD_rd + timing.CL + timing.burst) * dram_ps
    unaligned_ps = (m.l1.latency_clk + crossbar_clk) * clk_ps + m.hbm.request_ps + conflict_ps + m.hbm.extra_latency_ps
    assert abs(latency_ps(preset, HBM) - -(-unaligned_ps // dram_ps) * dram_ps) < dram_ps


def test_v100_parts_are_those_of_the_sources():
    m = load_preset("v100").machine
    assert m.l1.latency_clk == 30
    assert m.l1.latency_clk + 30 + m.l2.latency_clk + 1 + 30 == 215  # crossbar there, L2, port, crossbar back
    assert 30 + 30 + 1 + 30 == 91  # L1, crossbar there, port, crossbar back
    assert 91 * 725 + 50_000 + 41 * 1_140 + 147_000 == 309_715  # L2 to controller, row conflict, data to L2
    assert abs(latency_ps(load_preset("v100"), HBM) - 309_715) < 1_140  # an edge of the DRAM's clock


@pytest.mark.parametrize("chase", CHASES, ids=lambda chase: chase.level)
@pytest.mark.parametrize("name", PAGE.machines)
def test_latency_is_the_measured_one(name, chase):
    """Within the tolerance; without refresh, which a chase falls in step with, within a clock or a percent."""
    row, preset = measured(name), load_preset(name)
    if not row[chase.column]:
        pytest.skip(f"no {chase.column} of {name}")
    clocks = latency_ps(preset, chase) * float(row["clock_MHz"]) / 1e6
    theirs = float(row[chase.column])
    refreshed = chase is HBM and preset.machine.hbm.timing.REFI > 0
    assert abs(clocks - theirs) <= (LATENCY_TOLERANCE * theirs if refreshed else max(1, 0.01 * theirs))
    assert kind_of(preset, chase.column) == "calibration"


@pytest.mark.slow
def test_a_stream_is_as_fast_as_measured():
    """The write stream of v100; the table holds the others."""
    theirs = float(measured("v100")["HBM_write_GBps"])
    assert stream("v100", Flow.WRITE, MACHINES["v100"].stream_bytes).GBps == pytest.approx(
        theirs, rel=BANDWIDTH_TOLERANCE
    )
    assert kind_of(load_preset("v100"), "HBM_write_GBps") == "calibration"


def test_a_stream_is_a_kernel_of_the_benchmark():
    source = stream_source(load_preset("mi300x"), Flow.READ, 1 << 20)
    assert source.info.block == (1024, 1, 1) and source.access_bytes == 64 * 8
    (first, *_) = source.workgroups()
    assert (np.diff(first.first_event) == 3).all(), "a load, the use of its data, the exit"


def test_committed_table_is_within_the_tolerances():
    rows = [
        line
        for line in PAGE.table.read_text(encoding="utf-8").splitlines()
        if line.startswith(tuple(f"| {n} |" for n in PAGE.machines))
    ]
    assert len(rows) == 9 + 3 + 12
    off = [row.split(" | ")[:2] for row in rows if "| ok |" not in row]
    assert off == []


def test_accelsim_crossbar_and_l2_have_together_what_its_configuration_says():
    """160 clocks of rop, one each way in the local crossbar; 100 of DRAM; the split keeps the time window long."""
    preset = load_preset("accelsim_qv100")
    m, clk_ps = preset.machine, clock_ps(preset)
    assert 2 * m.noc.latency_clk + m.l2.latency_clk == 160 + 2
    assert 2 * m.noc.latency_clk * clk_ps + m.hbm.request_ps + m.hbm.extra_latency_ps == pytest.approx(
        (160 + 100 + 2) * clk_ps, abs=clk_ps
    )
    assert lookahead_ps(m) == 20 * clk_ps


def test_committed_table_has_these_latencies():
    committed = PAGE.table.read_text(encoding="utf-8").splitlines()
    for name in PAGE.machines:
        assert set(map(table_line, latency_rows(name))) <= set(committed)
    level, column, found_GBps, *bus = next(bandwidths("a100_80g"))
    assert table_line([*cells("a100_80g", level, column, found_GBps, BANDWIDTH_TOLERANCE), *bus]) in committed


def close(name, column, ps):
    row = measured(name)
    assert ps / period_ps(float(row["clock_MHz"])) == pytest.approx(float(row[column]), rel=LATENCY_TOLERANCE)
    assert kind_of(load_preset(name), column) == "calibration"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a100_80g_halves", "h100_sxm"])
def test_a_far_line_is_as_far_as_measured(name):
    close(name, FAR_COLUMN, far_latency_ps(name))


@pytest.mark.slow
def test_the_memory_side_cache_is_as_far_as_measured():
    close("mi300x", SIDE_CACHE.column, latency_ps(load_preset("mi300x", SMALL_L2), SIDE_CACHE))


def test_every_measured_number_has_a_claim_of_its_kind():
    experiments = {f"{kind}_{name}": name for kind in ("microbenchmarks", "machine_of_today") for name in MACHINES}
    claims = [claim for claim in load_claims() if claim.experiment in experiments]
    found = {(experiments[c.experiment], c.answer): (c.published, c.kind) for c in claims}
    columns = (*(chase.column for chase in (*CHASES, SIDE_CACHE)), FAR_COLUMN, L2_COLUMN, *(one for _, one in STREAMS))
    expected = {}
    for name in MACHINES:
        preset, row = load_preset(name), measured(name)
        for column in (column for column in columns if row.get(column)):
            expected[name, column] = (float(row[column]), kind_of(preset, column))
    assert found == expected
