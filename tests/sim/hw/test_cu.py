"""Compute unit: issue slots, pipes, the shared-memory port, barriers and the end of workgroups."""

import pytest

from tests.support.cu_bench import CLOCK_PS, run_cu
from tests.support.programs import barrier, compute, load, row, store
from traces.schema import ARRIVE_ONLY, LATER, Kind, Pipe, Space

P = 0x80000
SCHEDULERS = 4


def probe(w, **fields):
    return store(P + 128 * w, **fields)


def times(bench, count):
    """When each probe was issued, in whole clocks: on a fast load/store unit probes still queue for a few ps."""
    return [bench.issued_ps(P + 128 * w)[0] // CLOCK_PS * CLOCK_PS for w in range(count)]


def shared(kind=Kind.LOAD, **fields):
    return row(kind, space=Space.SHARED, **fields)


@pytest.mark.parametrize(("issue", "issue_ps"), [(1.0, CLOCK_PS), (0.25, 4 * CLOCK_PS)])
def test_a_scheduler_issues_one_instruction_per_issue_time(issue, issue_ps):
    """Warps 0 and 4 share a scheduler, 0 and 1 do not."""
    program = [compute(10, Pipe.UNIFORM)]
    bench = run_cu([[[*program, probe(w)] for w in range(5)]], f"cu.issue_per_clk={issue}", "cu.lsu_lines_per_clk=64.0")
    found = times(bench, 5)
    assert found[0] == 10 * issue_ps
    assert all(found[0] <= time <= found[0] + CLOCK_PS for time in found[:4])
    assert found[4] >= 20 * issue_ps
    assert bench.cu["issue_busy_ps"] == 5 * (10 + 2) * issue_ps
    assert bench.cu["warp_instructions"] == 5 * 12 and bench.cu["events"] == 5 * 3


@pytest.mark.parametrize(
    ("pipe", "clocks"),
    [(Pipe.ALU, 2), (Pipe.FMA, 2), (Pipe.FP64, 4), (Pipe.SFU, 8), (Pipe.BRANCH, 1), (Pipe.UNIFORM, 1)],
)
def test_a_pipe_is_taken_for_its_instructions(pipe, clocks):
    bench = run_cu([[[compute(10, pipe), probe(0)]]])
    assert times(bench, 1) == [10 * clocks * CLOCK_PS]
    counted = (Pipe.ALU, Pipe.FMA, Pipe.FP64, Pipe.SFU)
    busy_clk = [bench.cu[f"{one.name.lower()}_busy_ps"] // CLOCK_PS for one in counted]
    assert busy_clk == [10 * clocks if one == pipe else 0 for one in counted]


def test_warps_of_one_scheduler_share_its_pipe():
    warps = [[compute(10, Pipe.FMA), probe(w)] for w in range(5)]
    found = times(run_cu([warps], "cu.lsu_lines_per_clk=64.0"), 5)
    assert found[0] == 20 * CLOCK_PS
    assert found[4] == 40 * CLOCK_PS  # behind warp 0 in the pipe of scheduler 0


def test_the_latency_of_a_run_counts_from_its_first_instruction():
    assert times(run_cu([[[compute(10, Pipe.FMA, cycles=35), probe(0)]]]), 1) == [35 * CLOCK_PS]
    assert times(run_cu([[[compute(10, Pipe.FMA, cycles=15), probe(0)]]]), 1) == [20 * CLOCK_PS]


def test_a_matrix_event_takes_work_over_rate_of_its_schedulers_pipe():
    work = 4096  # 512 per clock and CU, 128 per scheduler
    clocks = work // 128
    bench = run_cu([[[compute(2, Pipe.TENSOR, work=work), probe(w)] for w in range(5)]], "cu.lsu_lines_per_clk=64.0")
    found = times(bench, 5)
    assert found[0] == clocks * CLOCK_PS and found[4] == 2 * clocks * CLOCK_PS
    assert bench.cu["tensor_macs"] == 5 * work and bench.cu["tensor_busy_ps"] == 5 * clocks * CLOCK_PS
    padded = run_cu([[[compute(2, Pipe.TENSOR, work=work, row_stride=1000), probe(0)]]])
    assert padded.cu["tensor_macs"] == 1000 and times(padded, 1) == [clocks * CLOCK_PS], "padding takes time, no work"
    one_more = run_cu([[[compute(2, Pipe.TENSOR, work=work + 1), probe(0)]]], "cu.tensor_macs_per_clk=512.0")
    assert one_more.issued_ps(P) == [(clocks * CLOCK_PS * 128 + CLOCK_PS + 127) // 128]  # rounded up to a picosecond


def test_a_warp_waits_for_a_later_result_only_where_it_says_so():
    """Ten exponentials issue in 10 clocks and take 80 of their pipe; 20 instructions of another pipe run meanwhile."""
    later = compute(10, Pipe.SFU, cycles=35, space=LATER, slot=3)
    program = [later, probe(0), compute(10, Pipe.FMA), probe(1), probe(2, wait=[3])]
    found = times(run_cu([[program]], "cu.lsu_lines_per_clk=64.0"), 3)
    assert found == [10 * CLOCK_PS, 31 * CLOCK_PS, 80 * CLOCK_PS]
    long = compute(10, Pipe.SFU, cycles=135, space=LATER, slot=3)
    assert times(run_cu([[[long, probe(0, wait=[3])]]]), 1) == [135 * CLOCK_PS]


def test_later_results_of_one_pipe_come_one_after_the_other():
    """Each of three products takes 32 clocks of the pipe of the scheduler; a warp that waits for them sleeps."""
    products = [compute(1, Pipe.TENSOR, work=4096, space=LATER, slot=slot) for slot in (1, 2, 1)]
    program = [*products, probe(0), probe(1, wait=[2]), probe(2, wait=[1])]
    bench = run_cu([[program]], "cu.lsu_lines_per_clk=64.0")
    assert times(bench, 3) == [3 * CLOCK_PS, 64 * CLOCK_PS, 96 * CLOCK_PS]
    assert bench.cu["tensor_busy_ps"] == 96 * CLOCK_PS and bench.cu["tensor_macs"] == 3 * 4096


@pytest.mark.parametrize(("one", "ends"), [("false", [26, 31, 53, 29, 32]), ("true", [26, 41, 73, 77, 32])])
def test_vector_instructions_share_one_pipe_or_have_one_each(one, ends):
    """Ten of 2 clocks, ten of 2, four of 8, one of 4, and a product of 32 in a pipe of its own; the 26 issue in 26."""
    runs = [(10, Pipe.FMA), (10, Pipe.ALU), (4, Pipe.SFU), (1, Pipe.FP64)]
    program = [compute(1, Pipe.TENSOR, work=4096, space=LATER, slot=5)]
    program += [compute(count, pipe, space=LATER, slot=slot) for slot, (count, pipe) in enumerate(runs, 1)]
    found = [run_cu([[[*program, probe(0, wait=[slot])]]], f"cu.one_vector_pipe={one}") for slot in (1, 2, 3, 4, 5)]
    assert [bench.issued_ps(P)[0] // CLOCK_PS for bench in found] == ends
    busy = [int(found[0].cu[f"{pipe}_busy_ps"]) // CLOCK_PS for pipe in ("fma", "alu", "sfu", "fp64")]
    assert busy == [20, 20, 32, 4], "counted by kind"


@pytest.mark.parametrize(("pipe", "clocks"), [(Pipe.ALU, 2), (Pipe.FMA, 2), (Pipe.FP64, 4), (Pipe.SFU, 8)])
def test_other_pipes_hold_up_a_matrix_pipe_that_is_in_use(pipe, clocks):
    """Three instructions beside a product of 32 clocks: the next product begins later by half of their time."""
    product, other = compute(1, Pipe.TENSOR, work=4096, space=LATER, slot=1), compute(3, pipe)
    program = [product, other, compute(1, Pipe.TENSOR, work=4096, space=LATER, slot=2), probe(0, wait=[1])]
    bench = run_cu([[[*program, probe(1, wait=[2])]]], "cu.tensor_hold=0.5")
    held_ps = 3 * clocks * CLOCK_PS // 2
    assert times(bench, 1) == [32 * CLOCK_PS], "the product that runs ends as before"
    assert bench.issued_ps(P + 128) == [64 * CLOCK_PS + held_ps]
    assert bench.cu["tensor_held_ps"] == held_ps and bench.cu["tensor_busy_ps"] == 64 * CLOCK_PS


def test_a_matrix_pipe_is_held_up_only_while_it_has_work_and_by_its_own_scheduler():
    product = compute(1, Pipe.TENSOR, work=4096, space=LATER, slot=1)
    after = [compute(3, Pipe.SFU), product, probe(0, wait=[1])]
    late = run_cu([[after]], "cu.tensor_hold=0.5")
    assert late.issued_ps(P) == [(24 + 32) * CLOCK_PS] and late.cu["tensor_held_ps"] == 0
    others = [[compute(3, Pipe.SFU)] for _ in range(SCHEDULERS - 1)]
    elsewhere = run_cu([[[product, product, probe(0, wait=[1])], *others]], "cu.tensor_hold=0.5")
    assert elsewhere.issued_ps(P) == [64 * CLOCK_PS] and elsewhere.cu["tensor_held_ps"] == 0
    beside = run_cu([[[product, product, probe(0, wait=[1])], *others, others[0]]], "cu.tensor_hold=0.5")
    assert beside.issued_ps(P) == [64 * CLOCK_PS] and beside.cu["tensor_held_ps"] == 12 * CLOCK_PS
    again = [product, compute(3, Pipe.SFU), product, probe(0, wait=[1])]
    for scheduler in range(SCHEDULERS):
        warps = [again if warp == scheduler else [compute(1, Pipe.UNIFORM)] for warp in range(SCHEDULERS)]
        assert run_cu([warps], "cu.tensor_hold=0.5").issued_ps(P) == [(64 + 12) * CLOCK_PS]


def test_the_shared_port_serves_all_warps_one_after_the_other():
    """32 lanes of 16 bytes are four clocks of the 128-byte port; the data come 20 clocks later."""
    warps = [[shared(width_bytes=16, slot=1), probe(w, wait=[1])] for w in range(3)]
    bench = run_cu([warps], "cu.lsu_lines_per_clk=64.0")
    assert times(bench, 3) == [(4 * (w + 1) + 20) * CLOCK_PS for w in range(3)]
    assert bench.cu["shared_bytes"] == 3 * 512 and bench.cu["shared_busy_ps"] == 12 * CLOCK_PS
    assert bench.lsu["line_requests"] == 3  # the probes


@pytest.mark.parametrize(
    ("fields", "clocks", "volume"),
    [
        ({"mask": 1}, 1, 4),
        ({"count": 3, "mask": 3}, 3, 24),
        ({"count": 2, "width_bytes": 8}, 4, 512),
        ({"count": 4, "width_bytes": 16, "mask": 0xFFF}, 6, 768),
    ],
)
def test_the_shared_port_gives_each_instruction_a_clock_and_masked_lanes_none(fields, clocks, volume):
    bench = run_cu([[[shared(slot=1, **fields), probe(0, wait=[1])]]])
    assert times(bench, 1) == [(clocks + 20) * CLOCK_PS]
    assert bench.cu["shared_bytes"] == volume and bench.cu["shared_busy_ps"] == clocks * CLOCK_PS


def test_a_barrier_holds_until_the_last_warp_comes():
    late = 50
    warps = [[barrier(), probe(0)], [compute(late, Pipe.UNIFORM), barrier(), probe(1)], [barrier(), probe(2)]]
    bench = run_cu([warps], "cu.lsu_lines_per_clk=64.0")
    assert times(bench, 3) == [(late + 1) * CLOCK_PS] * 3
    assert bench.cu["barrier_stall_ps"] == 2 * late * CLOCK_PS


def test_barriers_have_numbers():
    """Warp 0 waits at barrier 2 for warp 3 while warps 1 and 2 meet at barrier 1."""
    slow = compute(50, Pipe.UNIFORM)
    warps = [
        [barrier(2, 64), probe(0)],
        [barrier(1, 64), probe(1)],
        [barrier(1, 64), probe(2)],
        [slow, barrier(2, 64), probe(3)],
    ]
    found = times(run_cu([warps], "cu.lsu_lines_per_clk=64.0"), 4)
    assert found == [51 * CLOCK_PS, CLOCK_PS, CLOCK_PS, 51 * CLOCK_PS]


@pytest.mark.parametrize("threads", [33, 64])
def test_a_barrier_opens_for_the_threads_it_expects(threads):
    """Whole warps arrive."""
    sync, late = barrier(0, threads), compute(50, Pipe.UNIFORM)
    warps = [[sync, probe(0)], [late, sync, probe(1)], [compute(90, Pipe.UNIFORM), probe(2)]]
    assert times(run_cu([warps], "cu.lsu_lines_per_clk=64.0"), 2) == [51 * CLOCK_PS] * 2


def test_a_warp_that_has_ended_is_not_waited_for():
    warps = [[barrier(), probe(0)], [compute(70, Pipe.UNIFORM)], [barrier(), probe(2)]]
    bench = run_cu([warps], "cu.lsu_lines_per_clk=64.0")
    assert [time // CLOCK_PS for w in (0, 2) for time in bench.issued_ps(P + 128 * w)] == [71, 71]  # EXIT issues at 70


@pytest.mark.parametrize("ends", [0, 70])
def test_a_barrier_of_more_threads_than_are_left_waits_for_nobody(ends):
    """Whether the warp that never comes ends before or after the others come."""
    early = [compute(ends, Pipe.UNIFORM)] if ends else []
    sync, late = barrier(1, 96), compute(50, Pipe.UNIFORM)
    bench = run_cu([[[sync, probe(0)], early, [late, sync, probe(2)]]], "cu.lsu_lines_per_clk=64.0")
    opens = max(ends, 50) + 1
    assert [time // CLOCK_PS for w in (0, 2) for time in bench.issued_ps(P + 128 * w)] == [opens] * 2


def test_a_barrier_serves_again():
    slow = compute(20, Pipe.UNIFORM)
    warps = [[barrier(), barrier(), probe(0)], [slow, barrier(), slow, barrier(), probe(1)]]
    assert times(run_cu([warps], "cu.lsu_lines_per_clk=64.0"), 2) == [42 * CLOCK_PS] * 2


def test_workgroups_have_barriers_of_their_own():
    slow = compute(40, Pipe.UNIFORM)
    groups = [[[barrier(), probe(0)], [barrier()]], [[slow, barrier(), probe(1)], [barrier()]]]
    assert times(run_cu(groups, "cu.lsu_lines_per_clk=64.0"), 2) == [CLOCK_PS, 41 * CLOCK_PS]


def test_a_place_is_used_again_with_a_clean_scoreboard():
    """The load that nobody waits for comes back when the place belongs to the next workgroup."""
    groups = [[[load(0x10000)]], [[load(0x20000, slot=0), probe(1, wait=[0])]], [[probe(2)]]]
    bench = run_cu(groups, places=1, memory_ps=100_000)
    assert bench.cu["workgroups"] == 3
    started_ps = 2 * CLOCK_PS
    assert bench.left_ps(0x20000) == [started_ps + 30 * CLOCK_PS]
    assert bench.issued_ps(P + 128) == [started_ps + 130 * CLOCK_PS]


def test_a_new_workgroup_begins_without_arrivals():
    sync, slow = barrier(1, 64), compute(60, Pipe.UNIFORM)
    groups = [[[barrier(1, 64, space=ARRIVE_ONLY)], []], [[sync, probe(0)], [slow, sync, probe(1)]]]
    bench = run_cu(groups, "cu.lsu_lines_per_clk=64.0", places=1)
    assert times(bench, 2)[0] == times(bench, 2)[1]


def test_who_only_arrives_does_not_wait():
    """A producer arrives and goes on; consumers wait for it, though it may have ended by then."""
    arrive, slow = barrier(1, 96, space=ARRIVE_ONLY), compute(60, Pipe.UNIFORM)
    sync = barrier(1, 96)
    late = run_cu([[[slow, arrive, probe(0)], [sync, probe(1)], [sync, probe(2)]]], "cu.lsu_lines_per_clk=64.0")
    assert times(late, 3) == [61 * CLOCK_PS] * 3
    early = run_cu([[[arrive, probe(0)], [sync, probe(1)], [slow, sync, probe(2)]]], "cu.lsu_lines_per_clk=64.0")
    assert times(early, 3) == [CLOCK_PS, 61 * CLOCK_PS, 61 * CLOCK_PS]
    assert early.cu["barrier_stall_ps"] == 60 * CLOCK_PS


def test_the_arrival_of_a_warp_that_has_ended_still_counts():
    arrive, slow, sync = barrier(1, 96, space=ARRIVE_ONLY), compute(60, Pipe.UNIFORM), barrier(1, 96)
    bench = run_cu([[[arrive], [slow, sync, probe(1)], [slow, slow, sync, probe(2)]]], "cu.lsu_lines_per_clk=64.0")
    assert [time // CLOCK_PS for w in (1, 2) for time in bench.issued_ps(P + 128 * w)] == [121, 121]
