"""Shares of the peaks and what bounds a run: re-derived from counters of runs that one unit bounds."""

from dataclasses import replace

import pytest

from sim.explain.changes import FASTER
from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.kernel_figures import busy_shares
from sim.run.one_gpu import simulate
from sim.run.run import KernelRun
from sim.run.shares import bounded_by, operations, peak_tera_flop_per_s, shares, tera_flop_per_s
from sim.scenario.scenario import Scenario
from sim.view.roofline import point
from tests.support.programs import (
    bulk,
    cluster_arrive,
    cluster_wait,
    compute,
    kernel,
    phase_arrive,
    phase_wait,
    remote,
    small_preset,
    wait,
)
from tests.support.result_samples import sample_results
from tracer.gemm.source import GemmKernel
from tracer.kernels import make_kernel, make_kernels
from tracer.sequence import CommandSequence
from tracer.workloads import aligned_problem
from traces.schema import Kind, Pipe


def run_of(text, *changes):
    return simulate(CommandSequence([make_kernel(text)]), load_preset("v100", changes))


def test_a_stream_is_bound_by_dram():
    result = run_of("stream:flow=read,buffer_bytes=33554432")
    time_s = result.kernels[0].time_ps * 1e-12
    expected = result.totals["hbm.read_columns"] * 32 / time_s / result.preset.peaks().dram_bytes_per_s
    assert shares(result)["DRAM"] == pytest.approx(expected, rel=1e-6) and expected > 0.8
    assert bounded_by(result) == "DRAM" and tera_flop_per_s(result) is None


def test_reads_fill_one_direction_of_l2_and_every_verb_says_so():
    result = run_of("stream:flow=read,buffer_bytes=1048576,passes=4")
    time_ps, total = result.kernels[0].time_ps, result.totals
    read = 32 * total["l2.read_sectors"] / time_ps * 1e12 / result.preset.peaks().l2_bytes_per_s
    assert read <= shares(result)["L2"] < 1.4 * read  # headers come on top
    assert busy_shares(total, result.preset, time_ps)["l2"] == pytest.approx(shares(result)["L2"])


@pytest.mark.parametrize("pipe", ["alu", "fma", "fp64", "sfu"])
def test_arithmetic_is_bound_by_its_pipe(pipe):
    machine = load_preset("v100").machine.cu
    runs, count = 20, 500
    source = kernel([[[compute(count, Pipe[pipe.upper()])] * runs] * 2 * machine.schedulers] * machine.count)
    result = simulate(CommandSequence([source]), load_preset("v100"))
    clocks = 2 * runs * count / getattr(machine, f"{pipe}_warps_per_clk")
    expected = clocks / (machine.clock_MHz * 1e6) / (result.kernels[0].time_ps * 1e-12)
    assert shares(result)[pipe.upper()] == pytest.approx(expected, rel=0.001) and expected > 0.9
    assert bounded_by(result) == pipe.upper()
    assert busy_shares(result.totals, result.preset, result.kernels[0].time_ps)[pipe] == shares(result)[pipe.upper()]
    assert "bulk copies" not in shares(result)


HOPPER = ("cu.count=16", "l2.banks=32", "hbm.channels=8", "cu.groups=2", "dispatch.launch_ps=0")


def remote_loads():
    """Each of two workgroups reads the shared memory of the other."""
    warp = [[remote(Kind.LOAD, rank, 512 * k, slot=k % 32, width_bytes=16, stride=16) for k in range(300)]
            for rank in (1, 0)]  # fmt: skip
    return kernel([[warp[rank % 2]] * 4 for rank in range(16)], cluster=2)


def narrow_copies():
    """Bulk copies of one sector per line."""
    return kernel([[[bulk(32768 * k, 256, 32, 128, slot=0) for k in range(20)] + [wait(0)]]] * 16)


def multicasts(lines=256, rounds=4):
    """Each of eight workgroups loads an eighth of what all get."""
    tile = lines * 128

    def warp(rank):
        for done in range(1, rounds + 1):
            yield bulk((1 << 20) + rank * tile, 1, tile, barrier=0, to=range(8))
            yield from (phase_arrive(0, expected_bytes=7 * tile), phase_wait(0, done))
            yield from (cluster_arrive(), cluster_wait(done))

    return kernel([[list(warp(number % 8))] for number in range(16)], cluster=8)


@pytest.mark.parametrize(
    ("unit", "source"),
    [("ports between CUs", remote_loads), ("bulk copies", narrow_copies), ("NoC to CUs", multicasts)],
)
def test_ports_and_copy_units_bound_what_uses_nothing_else(unit, source):
    preset = load_preset("h100_sxm", [*HOPPER, "l2.partitions=1", "l2.sharing=home"])
    result = simulate(CommandSequence([source()]), preset)
    assert bounded_by(result) == unit and 0.75 < shares(result)[unit] <= 1
    assert next(change for change in FASTER if change.unit == unit)


IN_L2 = "stream:flow=read,buffer_bytes=1048576,passes=4"
GEMM = "gemm:m=512,n=512,k=128"


@pytest.mark.parametrize(
    ("unit", "text", "changes"),
    [
        ("LSU", IN_L2, ["cu.lsu_lines_per_clk=0.03"]),
        ("NoC to CUs", IN_L2, ["noc.response_bytes_per_clk=4", "noc.clock_MHz=900"]),
        ("NoC to L2", "stream:flow=write,buffer_bytes=1048576", ["noc.request_bytes_per_clk=2", "noc.clock_MHz=900"]),
        ("L2", IN_L2, ["noc.bank_bytes_per_clk=1"]),
        ("shared memory", GEMM, ["cu.shared_bytes_per_clk=8"]),
        ("matrix pipes", GEMM, ["cu.tensor_macs_per_clk=16"]),
        ("FMA", "gelu:rows=512,cols=1024", ["cu.fma_warps_per_clk=0.05"]),
        ("VALU", "gelu:rows=512,cols=1024", ["cu.one_vector_pipe=true", "cu.sfu_warps_per_clk=0.0625"]),
    ],
)
def test_a_unit_that_is_made_narrow_is_busy_all_the_time(unit, text, changes):
    result = run_of(text, "cu.count=8", *changes)
    assert bounded_by(result) == unit and 0.9 < shares(result)[unit] < 1.001
    assert [change.unit for change in FASTER].count(unit) == 1


@pytest.mark.parametrize(
    ("unit", "preset", "settings"),
    [
        ("dispatcher", "t3_2024", ["dispatch.workgroup_ps=100000"]),
        ("memory-side cache", "mi300x", ["msc.lines_per_clk=0.01"]),
    ],
)
def test_a_unit_that_is_made_slow_is_busy_all_the_time(unit, preset, settings):
    preset = load_preset(preset, settings)
    source = CommandSequence([make_kernel("stream:flow=copy,buffer_bytes=1048576", gpu_facts(preset.machine))])
    found = shares(simulate(source, preset))
    assert 0.85 < found[unit] < 1 and unit == max(found, key=found.get)


def test_the_first_workgroup_waits_for_no_dispatch():
    text = "chase:buffer_bytes=65536,loads=5"
    slow = KernelRun(
        preset=load_preset("v100", ["dispatch.workgroup_ps=10000000"]), source=CommandSequence([make_kernel(text)] * 3)
    )
    assert "dispatcher" not in shares(slow.execute())


def test_a_machine_without_a_unit_has_no_share_of_it():
    found = shares(simulate(CommandSequence([make_kernel(GEMM)]), load_preset("accelsim_qv100")))
    assert not {"dispatcher", "memory-side cache", "DMA engines"} & found.keys()


@pytest.mark.parametrize("write_back", ["true", "false"])
def test_requests_of_a_flush_are_not_in_the_share_of_the_memory_side_cache(write_back):
    """All writes of this GEMM are the flush."""
    sizes = ("msc.present=true", "msc.bytes=67108864", f"msc.write_back={write_back}")
    run = simulate(CommandSequence([make_kernel("gemm:m=512,n=512,k=256")]), load_preset("t3_2024", sizes))
    machine, total = run.preset.machine, run.totals
    assert total["msc.requests.compute_write"] > 0
    peak = machine.hbm.channels * machine.msc.clock_MHz * 1e6 * machine.msc.lines_per_clk
    expected = total["msc.requests.compute_read"] / (run.kernels[0].time_ps * 1e-12) / peak
    assert shares(run)["memory-side cache"] == pytest.approx(expected)


def test_dma_engines_that_are_made_slow_bound_a_fused_kernel():
    preset = small_preset("dma.lines_per_clk=0.01")
    case = Scenario(preset, aligned_problem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2), 4)
    assert bounded_by(case.run("t3").execute()) == "DMA engines"


def test_data_between_halves_of_l2_pass_no_port_of_a_cu():
    """Each line is read once, by a CU of either half."""
    source = make_kernel("stream:flow=read,buffer_bytes=2097152")
    result = simulate(CommandSequence([source]), load_preset("h100_sxm", HOPPER))
    total, header = result.totals, result.preset.machine.noc.header_bytes
    assert total["copies.copy_miss_sectors"] > 20_000
    assert total["noc.cu_bytes"] == total["noc.answer_bytes"] == 2097152 + total["noc.answer_packets"] * header


@pytest.mark.parametrize(
    ("text", "macs"),
    [
        ("gemm:m=1,n=512,k=256", 512 * 256),
        ("gemm:m=65,n=65,k=65,batch=3", 3 * 65**3),
        ("gemm:groups=7x65,n=64,k=64", 72 * 64 * 64),
        ("gemm:m=256,n=256,k=64,dtype=fp8", 256 * 256 * 64),
    ],
)
def test_the_rate_of_a_gemm_has_no_padding_and_its_type(text, macs):
    preset = load_preset("h100_sxm", HOPPER)
    result = KernelRun(preset=preset, source=CommandSequence(make_kernels(text, gpu_facts(preset.machine)))).execute()
    assert tera_flop_per_s(result) == pytest.approx(2 * macs / result.kernels[0].time_ps)
    cost = 0.5 if "fp8" in text else 1
    assert peak_tera_flop_per_s(result) == pytest.approx(preset.peaks().tensor_flop_per_s / 1e12 / cost)
    assert result.totals["cu.tensor_macs"] >= macs


@pytest.mark.parametrize(
    "text",
    [
        "flash_attention:batch=1,heads=2,seq=100,head_dim=64",
        "flash_attention:batch=1,heads=2,seq=100,head_dim=64,backward=1",
        "attention:batch=1,heads=2,seq=65,head_dim=64",
    ],
)
def test_attention_has_the_operations_of_t3sim_kernel(text):
    """No padding of tiles, nothing that causality leaves out, no arithmetic of kernels without matrix work."""
    preset = load_preset("h100_sxm", HOPPER)
    kernels = make_kernels(text, gpu_facts(preset.machine))
    result = KernelRun(preset=preset, source=CommandSequence(kernels)).execute()
    matrix = [own.totals["cu.tensor_macs"] > 0 for own in result.kernels]
    expected = [kernel.flops * own for kernel, own in zip(kernels, matrix, strict=True)]
    assert operations(result) == expected and any(matrix)
    time_ps = sum(kernel.time_ps for kernel in result.kernels)
    assert tera_flop_per_s(result) == pytest.approx(sum(expected) / time_ps)
    matrix_kernel = matrix.index(True)
    assert point(result, matrix_kernel, "L2")[1] == pytest.approx(
        expected[matrix_kernel] * 1e12 / result.kernels[matrix_kernel].time_ps
    )
    last = len(kernels) - 1
    alone = KernelRun(preset=preset, source=CommandSequence(kernels), kernels=(last,)).execute()
    assert operations(alone) == expected[last:]
    before = replace(result, input={"trace": result.input["trace"]})  # archives of before
    assert operations(before) == [2 * own.totals["cu.tensor_macs"] for own in before.kernels]
    assert sum(operations(before)) > sum(expected)


def test_the_pipes_count_what_they_multiply_whatever_it_costs():
    preset = load_preset("v100", ["cu.count=4"])
    slow, fast = (
        simulate(CommandSequence([make_kernel(f"gemm:m=128,n=128,k=64,tile=128x128x32,mac_cost={cost}")]), preset)
        for cost in (8, 1)
    )
    assert slow.totals["cu.tensor_macs"] == fast.totals["cu.tensor_macs"] == 128 * 128 * 64
    assert slow.totals["cu.tensor_busy_ps"] == pytest.approx(8 * fast.totals["cu.tensor_busy_ps"], rel=0.02)


def test_a_chase_has_too_few_workgroups():
    assert bounded_by(run_of("chase:buffer_bytes=65536,loads=50")) == "too few workgroups (1)"


@pytest.mark.slow
def test_a_gemm_is_bound_by_the_pipes_if_the_memory_is_fast_and_by_latency_if_not():
    text = "gemm:m=1280,n=1024,k=512,tile=128x128x32"
    slow = run_of(text)
    assert bounded_by(slow).startswith("latency (")
    macs = 1280 * 1024 * 512
    assert tera_flop_per_s(slow) == pytest.approx(2 * macs / slow.kernels[0].time_ps, rel=1e-9)
    fewer = run_of(text, "cu.tensor_macs_per_clk=32")
    assert bounded_by(fewer) == "matrix pipes"
    assert shares(fewer)["matrix pipes"] == pytest.approx(
        tera_flop_per_s(fewer) * 1e12 / fewer.preset.peaks().tensor_flop_per_s, rel=0.01
    )


def test_a_flush_after_the_kernel_is_not_in_its_shares():
    run = sample_results()
    for each in run.kernels:
        each.totals["msc.write_sectors"] = 0
    before = shares(run)["DRAM"]
    for each in run.kernels:
        each.totals["l2.flush_sectors"] += 100
        each.totals["hbm.write_columns"] += 100
    del run.totals
    assert shares(run)["DRAM"] == before


def test_the_link_of_several_gpus():
    run = sample_results()
    run.figures = {"link_busy_ps": 10_000 * 9 // 10}
    for each in run.kernels:
        each.totals = dict.fromkeys(each.totals, 0)
    assert shares(run)["link"] == pytest.approx(0.9) and bounded_by(run) == "link"
    run.kernels = []
    assert shares(run) == {} and bounded_by(run) == ""


def test_a_memory_side_cache_that_writes_back_takes_the_flush():
    """The flush of L2 does not reach DRAM, so nothing is subtracted from what did."""
    sizes = ("msc.present=true", "msc.bytes=67108864", "msc.write_back=true")
    gemm = make_kernel("gemm:m=512,n=512,k=256")
    run = simulate(CommandSequence([gemm]), load_preset("t3_2024", sizes))
    assert run.headline()["dram_write_sectors"] == run.totals["hbm.write_columns"] == 0
    time_s = run.kernels[0].time_ps * 1e-12
    read = run.totals["hbm.read_columns"] * 32 / time_s / run.preset.peaks().dram_bytes_per_s
    assert shares(run)["DRAM"] == pytest.approx(read, rel=1e-6) and read > 0.05
    assert busy_shares(run.totals, run.preset, run.kernels[0].time_ps)["dram"] == pytest.approx(read, rel=1e-6)


def test_a_memory_side_cache_that_writes_through_passes_the_flush_on():
    """It is in the counters of DRAM, not in the time of the kernel."""
    sizes = ("msc.present=true", "msc.bytes=67108864")
    gemm = make_kernel("gemm:m=512,n=512,k=256")
    run = simulate(CommandSequence([gemm]), load_preset("t3_2024", sizes))
    written = run.totals["hbm.write_columns"]
    assert written == run.totals["l2.flush_sectors"] == run.headline()["dram_write_sectors_after_flush"] > 0
    assert run.headline()["dram_write_sectors"] == 0
