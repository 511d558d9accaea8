"""DEVIATIONS.md: its numbers and the tests that it names exist; here are the watchers that stand nowhere else."""

import re

import pytest

from sim.hw.address_map import bank_row_column, channel_local
from sim.machine.build import build
from sim.machine.wiring import lookahead_ps
from sim.presets import load_preset, presets
from sim.run.one_gpu import simulate
from sim.spec import BankHash
from tests.support.paths import ROOT
from tests.support.programs import compute, kernel, load, row, small_preset, wait
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.streams import PointerChase
from traces.schema import Cache, Kind, Space
from traces.units import whole_period_ps
from validation.against.gpu_rows import CHASES, Chase
from validation.against.microbenchmarks import latency_ps

TEXT = (ROOT / "validation" / "DEVIATIONS.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (D\d+) \|.*\| (.*) \|$", TEXT, re.MULTILINE)
MIB = 1 << 20


def run(source, preset=None):
    (result,) = simulate(CommandSequence([source]), preset or small_preset()).kernels
    return result


def test_numbers_count_up_and_code_mentions_only_these():
    numbers = [number for number, _ in ROWS]
    assert numbers == sorted(set(numbers), key=lambda number: int(number[1:]))
    for folder in ("traces", "tracer", "sim", "validation"):
        for path in (ROOT / folder).rglob("*.py"):
            mentioned = set(re.findall(r"\((D\d+)\)", path.read_text(encoding="utf-8")))
            assert mentioned <= set(numbers), path


def test_code_that_simplifies_says_its_number():
    files = [path for room in ("tracer", "sim", "validation") for path in (ROOT / room).rglob("*.py")]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [number for number, _ in ROWS if f"({number})" not in sources] == []


@pytest.mark.parametrize(("number", "watchers"), ROWS)
def test_watchers_exist(number, watchers):
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", watchers)
    assert named, number
    for file, test in named:
        (path,) = (ROOT / "tests").rglob(file)
        assert f"def {test}(" in path.read_text(encoding="utf-8"), (number, file, test)


@pytest.mark.parametrize("name", presets())
def test_periods_are_rounded_by_less_than_a_thousandth(name):
    """D1."""
    m = load_preset(name).machine
    for clock_MHz in (m.cu.clock_MHz, m.noc.clock_MHz, m.l2.clock_MHz, m.hbm.clock_MHz):
        assert round(1e6 / clock_MHz) == pytest.approx(1e6 / clock_MHz, rel=1e-3)


def test_far_strides_cost_no_more():
    """D2: 64 MiB apart, each load in a page of its own."""
    preset, near = load_preset("v100"), CHASES[2]
    far = Chase("far", "", 1 << 40, 64 * MIB + 8192 + 128, 2000, 2000, Cache.DEFAULT)
    assert latency_ps(preset, far) == pytest.approx(latency_ps(preset, near), rel=0.01)


def test_shared_memory_strides_cost_nothing():
    """D3: neighbouring words, and words that all lie in one of 32 banks."""

    def time_ps(stride):
        return run(kernel([[[row(Kind.LOAD, space=Space.SHARED, stride=stride, slot=1), wait(1)]]])).time_ps

    assert time_ps(4) == time_ps(128)


def test_tags_are_looked_up_when_an_event_starts():
    """D5: the last line of an event arrives while the first ones leave; hardware would find it there."""
    clk_ps = round(1e6 / small_preset().machine.cu.clock_MHz)
    wanted, others = 1 << 20, 1 << 21
    alone = run(kernel([[[load(wanted, mask=1, slot=1), wait(1)]]]))
    latency_clk = alone.time_ps // clk_ps
    many = row(Kind.LOAD, addresses=[*(others + 128 * k for k in range(31)), wanted], slot=1)
    totals = run(kernel([[[load(wanted, mask=1, slot=1)], [compute(cycles=latency_clk - 15), many]]])).totals
    assert (totals["l1.read_merged_sectors"], totals["l1.read_hit_sectors"]) == (1, 0)


def test_a_place_is_free_a_lookahead_after_its_workgroup_ended():
    """D7: workgroups of one clock, one after the other in the only place."""
    preset = small_preset("cu.count=1", "cu.workgroups=1", "dispatch.workgroup_ps=0")
    count, clock_ps = 20, whole_period_ps(preset.machine.cu.clock_MHz)
    one, many = (run(kernel([[[compute()]]] * number), preset).time_ps for number in (1, count))
    assert one <= 10 * clock_ps and many == count * one + (count - 1) * lookahead_ps(preset.machine)


def test_a_kernel_starts_with_an_empty_l1():
    """D14."""
    source = PointerChase(4096, 32)
    first, second = simulate(CommandSequence([source, source]), small_preset(), flush_l2=False).kernels
    assert first.totals["l1.read_hit_sectors"] == second.totals["l1.read_hit_sectors"] == 0
    assert second.totals["l2.read_hit_sectors"] == 32


def test_streams_far_apart_meet_in_few_banks():
    """D18: the same place in 64 regions of 1 MiB is one bank, a row each."""
    channel = build(load_preset("v100", ["hbm.bank_hash=none"]).machine)[0].channels[0]
    geometry = [int(channel[name]) for name in ("group_bits", "bank_bits", "row_bits", "bank_map", "bank_hash")]
    places = [
        bank_row_column(channel_local(k * MIB, int(channel["interleave_bytes"]), 64), *geometry)[:2] for k in range(64)
    ]
    assert len({bank for bank, _ in places}) == 1
    assert len({row for _, row in places}) == 64
    hashed = [bank_row_column(channel_local(k * MIB, 256, 64), *geometry[:4], int(BankHash.XOR))[0] for k in range(64)]
    assert len(set(hashed)) == 16 and load_preset("v100").machine.hbm.bank_hash == BankHash.XOR


def test_a_tile_takes_the_same_time_in_a_full_and_in_an_idle_machine():
    """D46."""
    preset = load_preset("v100", ["cu.count=4"])
    one, four = (run(make_kernel(f"gemm:m={m},n=64,k=128,tile=64x64x32,warps=2x2"), preset).totals for m in (64, 256))
    assert four["cu.tensor_busy_ps"] == 4 * one["cu.tensor_busy_ps"] > 0
