"""Bounds of every number of a machine: each has a reason, fits the units' records, and is checked in every way in."""

import pytest

from sim.host.gpu import Gpu
from sim.host.window import check_window_memory
from sim.hw import cu_record, l1, link_record, lsu_record, noc_record, tags, tracker, warp
from sim.hw.hbm import queue, record
from sim.machine.memory import available_bytes, check_memory, check_plan_memory, machine_bytes
from sim.presets import check, load_preset, presets
from sim.presets.bounds import BOUNDS, RECORD
from sim.presets.load import PresetError, machine_fields
from sim.run.many_gpus import replace_unit
from sim.study.fields import StudyError, checked_field
from tests.support.fields import RUNS, cases, result_of, what_is_wrong
from tests.support.fuzz import verdict
from tests.support.programs import small_preset
from traces.command.cli import main
from traces.errors import UserError

RECORDS = {
    "cu.count": noc_record.MAX_CUS,
    "cu.warps": warp.MAX_WARPS,
    "cu.workgroups": cu_record.MAX_WORKGROUPS,
    "cu.schedulers": cu_record.MAX_SCHEDULERS,
    "cu.loads_outstanding": lsu_record.MAX_LOADS,
    "l1.ways": tags.MAX_WAYS,
    "l1.mshrs": l1.MAX_ENTRIES,
    "l2.banks": noc_record.MAX_BANKS,
    "l2.ways": tags.MAX_WAYS,
    "msc.ways": tags.MAX_WAYS,
    "hbm.bank_groups": record.MAX_GROUPS,
    "hbm.banks_per_group": record.MAX_BANKS,
    "hbm.queue_entries": queue.MAX_ATOMS,
    "link.credits": link_record.MAX_CREDITS,
    "network.credits": link_record.MAX_CREDITS,
}


def test_every_number_has_bounds_with_a_reason():
    numbers = {field for field, kind in machine_fields().items() if kind in (int, float)}
    assert BOUNDS.keys() == numbers
    assert all(bound.least < bound.most and bound.why for bound in BOUNDS.values())


@pytest.mark.parametrize("name", presets())
def test_presets_fit(name):
    check.check_machine(load_preset(name).machine)


def test_bounds_are_the_sizes_of_the_records():
    assert {field for field, bound in BOUNDS.items() if RECORD in bound.why} - {"tracker.entries"} == RECORDS.keys()
    assert {field: BOUNDS[field].most for field in RECORDS} == RECORDS
    assert check.BANKS_MAX == record.MAX_BANKS
    assert check.QUEUE_MAX == queue.MAX_ATOMS
    assert check.TRACKER_SETS_MAX == tracker.MAX_SETS


@pytest.mark.parametrize("field", BOUNDS)
def test_beyond_its_bounds_a_number_is_refused(field):
    bound = BOUNDS[field]
    for value in (bound.least - 1, bound.most + 1, float("nan"), float("inf")):
        with pytest.raises(PresetError, match=f"{field}: found .*allowed is"):
            load_preset("t3_2024", {field: value})


def test_a_packet_takes_at_least_a_short_time_window():
    with pytest.raises(PresetError, match=r"noc.latency_clk: found 1, allowed is so many clocks that .* 500 ps"):
        load_preset("t3_2024", ["noc.clock_MHz=10000", "noc.latency_clk=1"])


@pytest.mark.parametrize("field", ["l2.mshrs", "l2.ways"])
def test_halves_with_copies_keep_a_place_for_lines_at_home(field):
    with pytest.raises(PresetError, match=f"{field}: found 1, allowed is at least 2 with l2.sharing = copies"):
        load_preset("a100_80g_halves", {field: 1})


def test_an_instruction_takes_at_most_two_microseconds():
    with pytest.raises(PresetError, match=r"cu.alu_warps_per_clk: found 0.001, allowed is at least 0.05 at this clock"):
        load_preset("t3_2024", ["cu.clock_MHz=10", "cu.alu_warps_per_clk=0.001"])


def test_matrix_pipes_have_the_rate_that_was_asked_for():
    """Those of all schedulers together: shares of the peak, and the time, are then right."""
    with pytest.raises(PresetError, match=r"cu.tensor_macs_per_clk: found 6.0, allowed is within 1% of a multiple of "):
        load_preset("t3_2024", {"cu.tensor_macs_per_clk": 6})
    for given, pipes in ((4, 1), (588.6, 147), (1_000_000, 250_000)):
        machine = load_preset("t3_2024", {"cu.tensor_macs_per_clk": given}).machine
        assert cu_record.make_cus(machine.cu, [0])["tensor_macs_per_clk"] == pipes


def test_a_study_refuses_values_beyond_the_bounds():
    for field, value in (("l2.dram_fifo", 1), ("t3.gpus", 65), ("t3.gpus", 1), ("interval_ns", 1 << 31)):
        with pytest.raises(StudyError, match=f"s.toml: axes: {field}: found {value}, allowed is [0-9,]* to [0-9,]*: "):
            checked_field(field, value, "s.toml: axes")


def test_a_machine_made_in_python_is_checked_too():
    machine = replace_unit(small_preset().machine, l2={"dram_fifo": 1})
    with pytest.raises(UserError, match=r"machine: l2.dram_fifo: found 1, allowed is 2 to 65,536"):
        Gpu(machine)


def test_more_tracker_sets_than_the_record_holds_are_refused():
    load_preset("t3_2024", ["tracker.entries=8192", "tracker.ways=2"])
    with pytest.raises(UserError, match=r"tracker.entries: found 8194, allowed is at most 4096 x tracker.ways = 8192"):
        load_preset("t3_2024", ["tracker.entries=8194", "tracker.ways=2"])


def test_a_machine_that_does_not_fit_into_memory_is_refused_with_both_numbers():
    machine = load_preset("t3_2024", ["l2.bytes=68719476736", "l2.mshrs=8192", "l2.mshr_merges=1024"]).machine
    with pytest.raises(UserError, match=r"needs about [\d.e+]+ GiB of memory .*mshrs.*; [\d.]+ [KMG]iB are available"):
        check_memory(machine, gpus=32, ports=31)
    assert sum(machine_bytes(load_preset("t3_2024").machine).values()) < 1 << 28 < available_bytes()


def test_plans_and_trace_windows_that_do_not_fit_into_memory_are_refused():
    with pytest.raises(UserError, match=r"plan: 4,194,304 tiles on 32 GPUs need about 128 GiB of memory, .* available"):
        check_plan_memory(1 << 22, 32)
    with pytest.raises(UserError, match=r"trace: 400 workgroups of 100,000,000 events and 7 addresses need about"):
        check_window_memory(400, 100_000_000, 7)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("gemm:m=64,n=2147483648,k=64", "GEMM n = 2147483648: allowed is a whole number, 1 to 16,777,216: far more"),
        ("gemm:m=16777216,n=16777216,k=64", "an output of 562,949,953,421,312 bytes: allowed are 1,099,511,627,776"),
        ("gemm:m=8388608,n=64,k=64,tile=1x64x32,warps=1x1,vector_bytes=2", "tiles of C: allowed are 4,194,304"),
        ("gemm:m=64,n=64,k=16777216", "524,288 K-steps x 1 tiles x 4 warps in a workgroup, whose events are in memory"),
        (
            "gemm:m=64,n=64,k=16777216,split_k=4096,persistent=1,tile=64x64x32",
            "128 K-steps x 4,096 tiles x 8 warps in a",
        ),
        (
            "gemm:m=262144,n=262144,k=65536,tile_m=128",
            "x 8 warps: allowed are 10,000,000,000, which are a few",
        ),
        ("chase:buffer_bytes=4096,loads=99999999999", "chase loads = 99999999999: allowed is a whole number, 1 to"),
        ("stream:flow=read,buffer_bytes=1099511627776", "accesses in a workgroup, whose events are in memory: allowed"),
        ("layernorm:rows=2147483648,cols=65536", "warp accesses: allowed are 100,000,000,000, which are a few days"),
    ],
)
def test_kernels_of_days_of_work_are_refused_before_the_run(kernel, words, capsys):
    assert main(["run", "--kernel", kernel]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error, error


def test_a_sample_of_all_fields_ends_in_time_and_exactly_once(tmp_path):
    """Lowest, highest and random values of a few fields; `python -m tests.support.fuzz --fields` tries all."""
    for words in RUNS.values():
        assert main([*words]) == 0  # not on the clock: what is compiled or loaded once
    sample = list(cases(seed=20))[::53]
    assert len(sample) > 10
    for case in sample:
        found, said = verdict(case.words, tmp_path)
        assert not what_is_wrong(found, said), (case, said)
        assert result_of(said) or said.count("\n") == 1, (case, said)


def test_a_byte_that_is_no_text_is_refused(capsys):
    """Python gives such a byte of the command line as half of a pair."""
    assert main(["run", "--gemm", "64x64x64", "--set", "hbm.queue_entries=\udcff"]) == 2
    assert "hbm.queue_entries: found '\\udcff', allowed is text in UTF-8" in capsys.readouterr().err
