"""A GEMM beside a collective of a library: on CUs of their own, or on shared ones."""

import pytest

from sim.collective.library import Choice, choose
from sim.host.team import use_threads
from sim.presets import load_preset
from sim.run.library_preset import library_preset
from sim.run.library_run import BesideRun, LibraryRun
from sim.run.run import KernelRun
from tests.support.any_windows import windows
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from traces.errors import UserError


def test_a_gemm_beside_a_collective_has_cus_of_its_own():
    choice = choose("nccl_a100", "all_reduce", 2, 65536, channels=4)
    preset = library_preset(load_preset("a100_80g"), choice)
    common = {"preset": preset, "kind": "all_reduce", "gpus": 2, "data_bytes": 65536, "choice": choice}
    alone = LibraryRun(**common).execute()
    both = BesideRun(**common, source=GemmSource(fp16_problem(512, 512, 64), TILE)).execute()
    assert both.exactly_once and both.link_bytes == alone.link_bytes
    assert both.figures["collective_end_ps"] == pytest.approx(alone.time_ps, rel=0.05)
    assert both.time_ps >= both.figures["gemm_end_ps"] > preset.machine.dispatch.launch_ps
    with pytest.raises(UserError, match="channels: found 108, allowed beside a GEMM are 1 to 107"):
        many = Choice("nccl_a100", "ring", "ll", 108)
        BesideRun(**common | {"choice": many, "source": GemmSource(fp16_problem(512, 512, 64), TILE)}).execute()


CHANNELS = 4
FULL = GemmSource(fp16_problem(512, 512, 256), TILE)
"""256 workgroups: with one on a CU, more than two waves on 108 CUs."""


def beside(rule="in_turn", channels=CHANNELS, **fields):
    choice = choose("nccl_a100", "all_reduce", 2, 1 << 20, channels=channels)
    preset = library_preset(load_preset("a100_80g", [f"dispatch.kernels={rule}", "cu.workgroups=1"]), choice)
    common = {"preset": preset, "kind": "all_reduce", "gpus": 2, "data_bytes": 1 << 20, "choice": choice}
    return BesideRun(**common | {"source": FULL, "shared": True} | fields)


def alone(run):
    """The GEMM and the collective of a run, each alone."""
    gemm = KernelRun(preset=run.preset, source=CommandSequence([run.source]), flush_l2=False)
    fields = ("preset", "kind", "gpus", "data_bytes", "choice")
    return gemm.execute(), LibraryRun(**{name: getattr(run, name) for name in fields}).execute()


@pytest.mark.parametrize("lead_ps", [0, 100_000_000])
@pytest.mark.parametrize("rule", ["in_order", "in_turn"])
def test_a_gemm_and_a_collective_on_shared_cus_move_what_they_move_alone(rule, lead_ps):
    run = beside(rule, lead_ps=lead_ps)
    both, (gemm, collective) = run.execute(), alone(run)
    assert both.exactly_once and both.link_bytes == collective.link_bytes
    for name in ("lsu.line_requests", "cu.workgroups", "cu.warp_instructions", "l2.write_sectors"):
        assert both.totals[name] == gemm.totals[name] + collective.totals[name], name


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lead_ps", [-7_000_000, 0, 100_000_000])
def test_kernels_at_once_start_a_launch_after_their_calls(shared, lead_ps):
    """The earlier call is at 0. On shared CUs the queues are in the order of the starts."""
    run = beside(shared=shared, lead_ps=lead_ps)
    machine, launches = run.preset.machine, run.kernels(run.plans()[0])
    called_ps = {
        launch.comm: launch.start_ps - (machine.collective if launch.comm else machine.dispatch).launch_ps
        for launch in launches
    }
    assert min(called_ps.values()) == 0 and called_ps[False] - called_ps[True] == lead_ps
    in_queues = sorted(launches, key=lambda launch: launch.queue)
    if shared:
        assert [launch.start_ps for launch in in_queues] == sorted(launch.start_ps for launch in launches)
        assert [(launch.cus, launch.keeps) for launch in in_queues if launch.comm] == [(None, CHANNELS)]
    else:
        count = machine.cu.count
        assert [launch.cus for launch in in_queues] == [(0, count - CHANNELS), (count - CHANNELS, count)]


@pytest.mark.parametrize("lead_ps", [100_000_000, -100_000_000])
def test_a_collective_that_is_called_long_before_or_after_a_gemm_has_its_channels_at_once(lead_ps):
    run = beside(lead_ps=lead_ps)
    both, (gemm, collective) = run.execute(), alone(run)
    machine = run.preset.machine
    started_ps = machine.collective.launch_ps
    assert both.figures["channels_placed_ps"] == started_ps + (CHANNELS - 1) * machine.dispatch.workgroup_ps
    assert both.figures["collective_end_ps"] == pytest.approx(collective.time_ps, rel=0.05)
    assert 0.9 < both.figures["gemm_end_ps"] / gemm.time_ps < 1.5


def test_channels_behind_a_gemm_wait_for_its_tiles():
    """In turn for tiles of the first wave of three, in order for those of the second one."""
    machine = beside().preset.machine
    started_ps = machine.collective.launch_ps
    lead_ps = started_ps - machine.dispatch.launch_ps - 500_000  # the GEMM starts half a microsecond earlier
    wave_ps = (alone(beside())[0].time_ps - machine.dispatch.launch_ps) / 3
    turns, order = (beside(rule, lead_ps=lead_ps).execute() for rule in ("in_turn", "in_order"))
    waited = [(run.figures["channels_placed_ps"] - started_ps + 500_000) / wave_ps for run in (turns, order)]
    assert 0.8 < waited[0] < 1.2 and 1.7 < waited[1] < 2.2


def test_threads_and_windows_change_nothing_on_shared_cus():
    def run():
        result = beside().execute()
        return result.figures, result.kernels[0].totals

    expected = run()
    for ways in ({"length": 0.0}, {"seed": 3}):
        with windows(**ways):
            assert run() == expected
    use_threads(2)
    try:
        assert run() == expected
    finally:
        use_threads(None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"choice": Choice("nccl_a100", "ring", "ll", 109)}, "channels: found 109, allowed beside a GEMM are 1 to 108"),
        ({"choice": Choice("nccl_a100", "tree", "ll", 4)}, "algorithm on shared CUs: found tree, allowed is ring"),
    ],
)
def test_channels_that_do_not_fit_on_shared_cus_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        beside(**fields).execute()
