"""Time that passes without work: rounds in which no GPU acts are skipped, a machine that does nothing is reported."""

import msgspec
import pytest

from sim.host import gpu as host
from sim.host import watchdog
from sim.host.cluster import Cluster
from sim.host.gpu import Gpu
from sim.host.state import named_arrays
from sim.machine.deadlock import DeadlockError
from sim.run.many_gpus import replace_unit
from tests.support.programs import compute, kernel, lines, small_preset
from tests.support.t3_cases import T3Case, clusters
from traces.errors import UserError
from traces.schema import Kind

A = 1 << 36


def ended(case, part, monkeypatch, skip=True):
    """Records of all GPUs after a run, without the horizon's length; its rounds; its result."""
    rounds = []
    advance = Gpu.advance

    def counted(gpu, progress=None):
        rounds.append(gpu)
        return advance(gpu, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Gpu, "advance", counted)
        if not skip:
            patch.setattr(Cluster, "_skip_empty_rounds", lambda cluster, step_ps: None)
        with clusters() as seen:
            result = case._run(part)
    nodes = [{name: array.tobytes() for name, array in named_arrays(gpu.node).items()} for gpu in seen[0].gpus]
    return nodes, len(rounds), result


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("part", ["t3", "all_reduce"])
def test_empty_rounds_are_skipped_and_nothing_changes(part, explicit, monkeypatch):
    waits = ("collective.launch_ps=3000700", "collective.step_ps=1000300", "dispatch.launch_ps=2000500")
    case = T3Case(64, 64, 16, 2, settings=("link.latency_ps=5000", *waits), explicit=explicit)
    skipped, rounds, result = ended(case, part, monkeypatch)
    every, all_rounds, _ = ended(case, part, monkeypatch, skip=False)
    assert skipped == every and result.exactly_once
    assert rounds < all_rounds / 2


def test_a_tenth_of_a_second_of_nothing_takes_no_time(monkeypatch):
    waits = ("link.latency_ps=1000", "collective.launch_ps=100000000000", "hbm.timing.REFI=3900")
    _, rounds, result = ended(T3Case(64, 64, 16, 2, settings=waits), "rs", monkeypatch)
    assert result.exactly_once and result.kernel_ps > 10**11 and rounds < 200_000


def test_a_machine_that_only_refreshes_is_reported_with_what_waits(monkeypatch):
    """The next refresh is due before one has ended. The rule that refuses such a machine is off."""
    monkeypatch.setattr(host, "check_machine", lambda machine: None)
    monkeypatch.setattr(watchdog, "WINDOWS_WITHOUT_WORK", 5000)
    monkeypatch.setattr(host, "WINDOWS_PER_LOOK", 1000)
    machine = small_preset("hbm.refresh_postpone=0").machine
    timing = msgspec.structs.replace(machine.hbm.timing, REFI=200)
    one = kernel([[[lines(Kind.LOAD, A, 4, slot=1)]]], name="refreshed")
    with pytest.raises(DeadlockError, match=r"refreshed: .* time windows without work at \d+ ps .* for data 1"):
        Gpu(replace_unit(machine, hbm={"timing": timing})).run_kernel(one, 10_000_000, None)


def test_a_time_series_of_endless_rows_is_refused(monkeypatch):
    monkeypatch.setattr(host, "SERIES_ROWS_MAX", 5000)
    one = kernel([[[lines(Kind.LOAD, A, 4, slot=1)]]])
    with pytest.raises(UserError, match=r"time series: more than 5,000 rows .* interval of 10 ps: allowed is a longer"):
        Gpu(small_preset().machine, interval_ps=10).run_kernel(one, 10_000_000, None)


def test_simulated_time_has_an_end(monkeypatch):
    """Twenty events of 2^32 instructions at 10 MHz: a time in femtoseconds would overflow."""
    monkeypatch.setattr(host, "WINDOWS_PER_LOOK", 1 << 40)  # seven minutes of simulated time pass without work
    long = [compute(count=(1 << 32) - 1)] * 20
    with pytest.raises(UserError, match=r"endless: simulated time [\d,]+ ps, allowed are 4,503,599,627,370,496 ps"):
        Gpu(small_preset("cu.clock_MHz=10").machine).run_kernel(kernel([[long]] * 40, name="endless"), 0, None)
