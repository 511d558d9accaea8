"""Which stream enters the DRAM queue: oldest head, streams in turn, and a user's own policy."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sim.hw.arbiter import pick_stream
from sim.hw.hbm_setup import make_hbm_channels
from sim.hw.policy import bound_policy
from sim.hw.request import NEVER, STREAMS, Op, Stream
from sim.spec import Arbiter, QueueOrganisation
from tests.hw.hbm_rig import Access, bench_spec, run_bench
from traces.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def channel_with(arbiter, heads_ps, last_stream=-1):
    spec = bench_spec(arbiter=arbiter)
    channel = make_hbm_channels(spec, np.arange(STREAMS)[None], np.array([STREAMS])).view(np.recarray)[0]
    channel.head_ps[:] = heads_ps
    channel.last_stream = last_stream
    return channel


@pytest.mark.parametrize(
    ("heads_ps", "chosen"),
    [
        ([NEVER] * 4, -1),
        ([30, 20, 10, 40], 2),
        ([NEVER, 20, NEVER, 20], 1),
        ([0, 0, 0, 0], 0),
    ],
)
def test_fcfs_takes_the_oldest_head(heads_ps, chosen):
    assert pick_stream(channel_with(Arbiter.FCFS, heads_ps), 50) == chosen


@pytest.mark.parametrize(
    ("heads_ps", "last_stream", "chosen"),
    [
        ([NEVER] * 4, 1, -1),
        ([9, 8, 7, 6], -1, 0),
        ([9, 8, 7, 6], 3, 0),
        ([9, NEVER, 7, 6], 0, 2),
        ([9, NEVER, NEVER, NEVER], 0, 0),
    ],
)
def test_round_robin_goes_on_after_the_last_stream(heads_ps, last_stream, chosen):
    assert pick_stream(channel_with(Arbiter.ROUND_ROBIN, heads_ps, last_stream), 50) == chosen


def test_round_robin_shares_a_full_queue_equally():
    accesses = [Access(Op.READ, 128 * n, 15, stream) for n in range(60) for stream in range(STREAMS)]
    for arbiter in (Arbiter.ROUND_ROBIN, Arbiter.FCFS):
        bench = run_bench(bench_spec("G", "BG", arbiter=arbiter), accesses)
        order = np.argsort(bench.accepted_ps, kind="stable")
        early = np.bincount([accesses[tag].stream for tag in order[:100]], minlength=STREAMS)
        assert (early.max() - early.min() <= 1) == (arbiter == Arbiter.ROUND_ROBIN)


def test_a_large_request_is_not_passed_by_small_ones_for_ever():
    small = [Access(Op.READ, 128 * n, 1, Stream.COMPUTE_READ) for n in range(3000)]
    large = Access(Op.READ, 0x100000, 15, Stream.COMM_READ, ready_ps=1000)
    spec = bench_spec("G", "RO", queue=QueueOrganisation.UNIFIED, arbiter=Arbiter.ROUND_ROBIN)
    bench = run_bench(spec, [*small, large])
    assert bench.accepted_ps[-1] <= 25_000  # the first four columns to leave the full queue make room for it


POLICY = """
from sim.hw.request import NEVER

def pick(channel, now_ps):
    \"\"\"Highest stream first.\"\"\"
    for stream in range(3, -1, -1):
        if channel.head_ps[stream] < NEVER:
            return stream
    return -1
"""

USE = """
from tests.hw.test_arbiter import channel_with
from sim.hw.arbiter import pick_stream
from sim.spec import Arbiter
for arbiter in (Arbiter.USER, Arbiter.FCFS):
    print(pick_stream(channel_with(arbiter, [1, 2, 3, 4]), 9))
"""


def test_a_users_policy_from_a_file(tmp_path):
    policy = tmp_path / "last_first.py"
    policy.write_text(POLICY)
    for first, text in (("3", POLICY), ("0", POLICY.replace("range(3, -1, -1)", "range(4)"))):
        policy.write_text(text)  # an edited policy is compiled again
        environment = {**os.environ, "T3SIM_POLICY": str(policy), "PYTHONPATH": str(ROOT)}
        answer = subprocess.run(
            [sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.split() == [first, "0"]


def test_a_policy_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no file"):
        bound_policy(str(tmp_path / "none.py"))
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(UserError, match="no function pick"):
        bound_policy(str(empty))
    broken = tmp_path / "broken.py"
    broken.write_text("def pick(:\n")
    with pytest.raises(UserError, match=r"broken\.py"):
        bound_policy(str(broken))
    with pytest.raises(UserError, match="T3SIM_POLICY"):
        channel_with(Arbiter.USER, [1, 2, 3, 4])
