"""The channel gives the same command log as its naive twin, and the constraint checker finds nothing in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.spec import Arbiter, BankHash, PagePolicy, QueueOrganisation, Turn, UpdateScope
from tests.support.hbm_checker import check
from tests.support.hbm_rig import bench_spec, random_accesses, run_bench
from tests.support.hbm_twin import Twin, names

TURNS = {"queue": QueueOrganisation.UNIFIED, "arbiter": Arbiter.ROUND_ROBIN}
MACHINES = {
    "unified": {"queue": QueueOrganisation.UNIFIED},
    "unified, round robin": {"queue": QueueOrganisation.UNIFIED, "arbiter": Arbiter.ROUND_ROBIN},
    "split": {},
    "split, round robin": {"arbiter": Arbiter.ROUND_ROBIN},
    "small queues": {"queue_entries": 8},
    "closed page": {"page": PagePolicy.CLOSED, "queue": QueueOrganisation.UNIFIED},
    "closed page, refresh": {"page": PagePolicy.CLOSED, "REFI": 390, "RFC": 100, "refresh_postpone": 2},
    "refresh": {"queue": QueueOrganisation.UNIFIED, "REFI": 390, "RFC": 100},
    "refresh without postponement": {"REFI": 390, "RFC": 100, "refresh_postpone": 0},
    "updates wait anywhere": {"update_scope": UpdateScope.CHANNEL, "CCDWL": 7},
    "updates do not wait": {"update_scope": UpdateScope.OFF},
    "updates wait in their bank": {"update_scope": UpdateScope.BANK, "CCDWL": 7},
    "age limit": {"queue": QueueOrganisation.UNIFIED, "age_limit_ps": 150_000},
    "age limit, split": {"age_limit_ps": 150_500, "REFI": 700},
    "slow clock": {"clock_MHz": 850},
    "banks hashed by the row": {"bank_hash": BankHash.XOR},
    "in order": {"in_order": True, "queue": QueueOrganisation.UNIFIED, "arbiter": Arbiter.ROUND_ROBIN},
    "in order, split": {"in_order": True, "queue_entries": 8, "arbiter": Arbiter.ROUND_ROBIN, "turn": Turn.ROW},
    "turns of bursts": {**TURNS, "turn": Turn.BURST, "turn_requests": 3},
    "turns of rows": {**TURNS, "turn": Turn.ROW},
}


def same_as_twin(hbm, accesses, extra_calls=None, in_order=False):
    bench = run_bench(hbm, accesses, extra_calls, in_order)
    columns = ("time_ps", "command", "bank", "row", "column", "tag")
    ours = [tuple(int(entry[name]) for name in columns) for entry in bench.log]
    twin = Twin(hbm, accesses, in_order).run(bench.end_ps)
    for place, (mine, its) in enumerate(zip(ours, twin, strict=False)):
        assert mine == its, (
            place,
            names(ours[max(0, place - 3) : place + 2]),
            names(twin[max(0, place - 3) : place + 2]),
        )
    assert len(ours) == len(twin), names((ours + twin)[-3:])
    assert check(hbm, bench.log, accesses, bench.accepted_ps, bench.end_ps) == []


def same_on(name, bank_map, accesses, extra_calls=None):
    """`same_as_twin` on a machine of MACHINES."""
    fields = dict(MACHINES[name])
    in_order = fields.pop("in_order", False)
    same_as_twin(bench_spec("G", bank_map, **fields), accesses, extra_calls, in_order)


@pytest.mark.slow
@pytest.mark.parametrize("bank_map", ["RO", "BG", "RG", "SG"])
@pytest.mark.parametrize("name", MACHINES)
def test_same_log_as_the_twin(name, bank_map):
    accesses = random_accesses(hash_of(name), 500, spread_clk=3.0)
    same_on(name, bank_map, accesses)


@pytest.mark.slow
@pytest.mark.parametrize("timing_set", ["D", "R", "P", "HBM2e", "HBM3", "HBM3e"])
def test_other_timing_sets(timing_set):
    same_as_twin(bench_spec(timing_set, "BG"), random_accesses(7, 600, spread_clk=5.0))


@pytest.mark.slow
def test_a_long_run():
    same_as_twin(bench_spec("G", "BG", REFI=3900), random_accesses(11, 2000, spread_clk=2.5, rows=5))


@pytest.mark.parametrize("name", ["split", "closed page, refresh", "age limit", "in order, split", "turns of rows"])
def test_calls_that_were_not_asked_for_change_nothing(name):
    same_on(name, "RO", random_accesses(3, 400), np.random.default_rng(5))


@pytest.mark.slow
@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 120),
    name=st.sampled_from(sorted(MACHINES)),
    spread_clk=st.sampled_from([0.0, 1.0, 6.0, 40.0]),
    rows=st.integers(1, 6),
    writes=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    bank_map=st.sampled_from(["RO", "BG", "RG", "SG"]),
)
def test_any_traffic_on_any_machine(seed, count, name, spread_clk, rows, writes, bank_map):
    accesses = random_accesses(seed, count, spread_clk=spread_clk, rows=rows, writes=writes)
    same_on(name, bank_map, accesses)


def hash_of(name):
    """A seed that does not change between processes."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(name))
