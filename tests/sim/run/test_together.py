"""Kernels at once on one GPU: each on its CUs as alone, contention where they share memory, traffic, refusals."""

import json
import shlex

import pytest

from sim.machine.build import QUEUES
from sim.run.one_gpu import simulate
from sim.run.together import TogetherRun
from tests.support.any_windows import windows
from tests.support.programs import compute, kernel, small_preset
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from tracer.streams import BufferStream, Flow
from traces.command.cli import main
from traces.errors import UserError

GEMM = GemmSource(GemmProblem(256, 256, 128), GemmKernel(64, 64, 32, 2, 2))
COPY = BufferStream(Flow.COPY, 1 << 19, address=1 << 40, copy_address=1 << 41)
BUSY = kernel([[[compute(400) for _ in range(10)]] for _ in range(12)], name="busy")
SCHEDULING_PS = 725 * 4
TRAFFIC = ("l2.write_sectors", "lsu.line_requests", "hbm.write_columns")


def alone(source, cus):
    return simulate(CommandSequence([source]), small_preset(f"cu.count={cus}")).kernels[0]


def together(sources, cus, preset, flush_l2=True):
    return TogetherRun(preset=preset, sources=tuple(sources), cus=tuple(cus), flush_l2=flush_l2).execute()


def test_a_kernel_beside_one_that_uses_no_memory_takes_its_time_alone():
    result = together((GEMM, BUSY), (3, 1), small_preset())
    assert result.figures["at_once_1_ps"] == alone(BUSY, 1).time_ps
    # The GEMM ends with its last store in L2, its warps a little earlier.
    assert 0.95 * alone(GEMM, 3).time_ps < result.figures["at_once_0_ps"] <= alone(GEMM, 3).time_ps
    assert result.kernels[0].time_ps == max(alone(GEMM, 3).time_ps, alone(BUSY, 1).time_ps)


def test_times_are_from_the_launch():
    early, late = (together((GEMM, BUSY), (3, 1), small_preset(f"dispatch.launch_ps={ps}")) for ps in (0, 7_000_000))
    assert late.kernels[0].start_ps == early.kernels[0].start_ps + 7_000_000
    for name, time_ps in early.figures.items():
        assert late.figures[name] == pytest.approx(time_ps, rel=0.01), name  # other refreshes of DRAM


def test_the_flush_can_be_left_out():
    flushed, kept = (together((GEMM, BUSY), (3, 1), small_preset(), flush_l2=each) for each in (True, False))
    assert flushed.totals["l2.flush_sectors"] > kept.totals["l2.flush_sectors"] == 0
    assert flushed.figures == kept.figures


def test_as_many_kernels_as_there_are_queues_run_at_once():
    result = together([BUSY] * QUEUES, [1] * QUEUES, small_preset())
    assert set(result.figures.values()) == {alone(BUSY, 1).time_ps}
    with pytest.raises(UserError, match=f"kernels at once: found {QUEUES + 1}, allowed are 1 to {QUEUES}"):
        together([BUSY] * (QUEUES + 1), (), small_preset())


def test_kernels_that_share_memory_slow_each_other_down_and_move_what_they_move_alone():
    result = together((GEMM, COPY), (2, 2), small_preset())
    apart = [alone(source, 2) for source in (GEMM, COPY)]
    (both,) = result.kernels
    assert max(one.time_ps for one in apart) < both.time_ps < sum(one.time_ps for one in apart)
    for name in TRAFFIC:
        assert both.totals[name] == sum(one.totals[name] for one in apart), name


@pytest.mark.parametrize("cus", [(1, 3), ()])
def test_windows_change_no_byte(cus):
    def run():
        result = together((GEMM, COPY), cus, small_preset())
        return result.figures, result.kernels[0].totals

    expected = run()
    for way in ({"length": 0.0}, {"seed": 3}):
        with windows(**way):
            assert run() == expected


def test_kernels_that_fit_together_on_shared_cus_take_their_times_alone():
    small = [kernel([[[compute(400)] * 10]] * 4, name=name) for name in ("first", "second")]  # a warp on each CU
    result = together(small, (), small_preset())
    assert result.figures["at_once_0_ps"] == alone(small[0], 4).time_ps
    assert abs(result.figures["at_once_1_ps"] - alone(small[1], 4).time_ps) <= 4 * SCHEDULING_PS


def test_a_kernel_on_shared_cus_waits_until_all_workgroups_before_it_have_places():
    large = kernel([[[compute(400)] * 10]] * 3, name="large", shared_bytes=60 << 10)  # one fits on a CU
    little = kernel([[[compute(400)] * 10]] * 4, name="little")
    alone_ps = alone(little, 4).time_ps
    assert together((large, little), (), small_preset("cu.count=1")).figures["at_once_1_ps"] > 2 * alone_ps
    assert together((little, large), (), small_preset("cu.count=1")).figures["at_once_0_ps"] < 2 * alone_ps


def test_shared_cus_move_what_the_kernels_move_alone():
    (both,) = together((GEMM, COPY), (), small_preset()).kernels
    apart = [alone(source, 4) for source in (GEMM, COPY)]
    assert max(one.time_ps for one in apart) < both.time_ps < sum(one.time_ps for one in apart)
    for name in TRAFFIC:
        assert both.totals[name] == sum(one.totals[name] for one in apart), name


def test_the_key_knows_kernels_and_cus():
    preset = small_preset()
    runs = [
        TogetherRun(preset=preset, sources=sources, cus=cus)
        for sources, cus in (((GEMM, COPY), (2, 2)), ((GEMM, COPY), (3, 1)), ((COPY, GEMM), (2, 2)), ((GEMM, COPY), ()))
    ]
    assert len({run.key for run in runs}) == 4


@pytest.mark.parametrize(
    ("sources", "cus", "words"),
    [
        ((GEMM,) * 5, (1,) * 5, "kernels at once: found 5, allowed are 1 to 4"),
        ((GEMM, COPY), (4,), "found 1 numbers, allowed is one for each of 2"),
        ((GEMM, COPY), (4, 0), "found 4, 0, allowed is at least 1 each and 4 in all"),
        ((GEMM, COPY), (3, 2), "found 3, 2, allowed is at least 1 each and 4 in all"),
    ],
)
def test_divisions_that_do_not_fit_are_refused(sources, cus, words):
    with pytest.raises(UserError, match=words):
        together(sources, cus, small_preset())


TEXT = "stream:flow=copy,buffer_bytes=65536,address=1099511627776"


@pytest.mark.parametrize("cus", ["60,20", "shared"])
def test_the_command_runs_two_kernels(cus, capsys):
    words = ["run", "--gemm", "256x256x64", "--beside", TEXT, "--cus", cus, "--json", "--fresh"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["figures"]) == {"at_once_0_ps", "at_once_1_ps"}
    again = shlex.split(found["command"])[1:]
    assert "--beside" in again and main([*again, "--json"]) == 0
    repeated = json.loads(capsys.readouterr().out)
    assert repeated["from_store"] and repeated["figures"] == found["figures"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--beside", TEXT], "--cus: found ''"),
        (["--cus", "60,20"], "found 2 numbers, allowed is one for each of 1"),
        (["--beside", TEXT, "--cus", "60,x"], "--cus: found '60,x', allowed is shared, or whole numbers"),
        (["--beside", TEXT, "--cus", "60,20", "--accuracy", "1%"], "--beside: found --accuracy 1%, allowed with it is"),
        (["--beside", "nothing:x=1", "--cus", "60,20"], "--beside nothing:x=1: "),
    ],
)
def test_options_that_make_no_sense_are_refused(words, said, capsys):
    assert main(["run", "--gemm", "64x64x32", *words]) == 2
    assert said in capsys.readouterr().err
