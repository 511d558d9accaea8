"""Which stream enters the DRAM queue: oldest head, streams in turn, compute first, MCA, and a user's own policy."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sim.hw.arbiter import pick_stream
from sim.hw.hbm.channel import make_channels
from sim.hw.policy import bound_policy
from sim.hw.request import NEVER, STREAMS, Op, Stream
from sim.hw.stream_heads import take_turn
from sim.spec import Arbiter, QueueOrganisation, Turn
from tests.support.arbiter_rig import channel_with
from tests.support.hbm_rig import Access, bench_spec, run_bench
from tests.support.paths import ROOT
from tests.support.programs import small_preset
from traces.errors import UserError


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


def test_a_stream_that_goes_on_alone_begins_a_new_turn():
    """After a turn of four requests nobody else waited. Who comes then waits for the end of the second turn."""
    channel = channel_with(Arbiter.ROUND_ROBIN, [9, NEVER, 20, NEVER])
    channel.turn, channel.turn_requests = Turn.BURST, 4
    chosen = [0] * 5
    for stream in chosen:
        take_turn(channel, stream)
    while len(chosen) < 9:
        chosen.append(pick_stream(channel, 50))
        take_turn(channel, chosen[-1])
    assert chosen == [0, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(
    ("heads_ps", "chosen"),
    [
        ([NEVER] * 4, -1),
        ([90, 80, 1, 2], 1),  # compute however young, the older of the two
        ([90, NEVER, 1, 2], 0),
        ([80, 80, 1, 2], 0),
        ([NEVER, NEVER, 7, 6], 3),
        ([NEVER, NEVER, 6, 6], 2),
        ([NEVER, NEVER, NEVER, 6], 3),
    ],
)
def test_compute_first(heads_ps, chosen):
    channel = channel_with(Arbiter.COMPUTE_FIRST, heads_ps)
    channel.queued[:] = 1000  # however full the queue
    assert pick_stream(channel, 100) == chosen


@pytest.mark.parametrize("arbiter", [Arbiter.MCA, Arbiter.MCA_FIXED])
@pytest.mark.parametrize(
    ("queued", "heads_ps", "chosen"),
    [
        ((0, 0), [NEVER] * 4, -1),
        ((50, 0), [90, 80, 1, 2], 1),  # compute first, the limit is not its
        ((4, 0), [NEVER, NEVER, 7, 6], 3),
        ((5, 0), [NEVER, NEVER, 7, 6], -1),  # five entries are queued: no communication
        ((2, 2), [NEVER, NEVER, 7, 8], 2),  # entries of both queues count
        ((2, 3), [NEVER, NEVER, 7, 8], -1),
    ],
)
def test_mca_lets_communication_in_while_the_queue_is_short(arbiter, queued, heads_ps, chosen):
    channel = channel_with(arbiter, heads_ps)
    channel.mca.limit, channel.queued[:] = 5, queued
    assert pick_stream(channel, 100) == chosen


@pytest.mark.parametrize(
    ("heads_ps", "last_stream", "chosen"),
    [
        ([90, 95, 50, NEVER], 1, 0),  # it has waited 50 ps: not yet
        ([90, 95, 49, NEVER], 1, 2),  # 51 ps: turns, and it is the next after stream 1
        ([90, 95, 49, NEVER], 2, 0),  # turns go on, compute has its own
        ([90, 95, 60, 49], 2, 3),  # the older of the two counts
        ([NEVER, NEVER, 49, NEVER], 2, 2),  # even above the limit
    ],
)
def test_mca_takes_turns_once_communication_has_aged(heads_ps, last_stream, chosen):
    channel = channel_with(Arbiter.MCA, heads_ps, last_stream)
    channel.mca.limit, channel.mca.age_ps, channel.queued[:] = 5, 50, (60, 0)
    assert pick_stream(channel, 100) == chosen


def choice(arbiter, heads_ps, last_stream, keeps, queued, limit, age_ps, now_ps):
    """Naive twin of all policies. keeps: the turn of the last stream is not over."""
    waiting = [stream for stream in range(STREAMS) if heads_ps[stream] < NEVER]
    compute, comm = ([s for s in waiting if s in pair] for pair in ((0, 1), (2, 3)))
    oldest = {
        name: min(some, key=lambda s: (heads_ps[s], s), default=-1)
        for name, some in (("all", waiting), ("compute", compute), ("comm", comm))
    }
    in_turn = min(waiting, key=lambda s: (s - last_stream - 1) % STREAMS, default=-1)
    in_turn = last_stream if keeps and last_stream in waiting else in_turn
    if arbiter == Arbiter.FCFS:
        return oldest["all"]
    if arbiter == Arbiter.ROUND_ROBIN:
        return in_turn
    if arbiter in (Arbiter.MCA, Arbiter.MCA_FIXED):
        if comm and now_ps - min(heads_ps[s] for s in comm) > age_ps:
            return in_turn
        comm_may = queued < limit
    else:
        comm_may = True
    return oldest["compute"] if compute else oldest["comm"] if comm_may else -1


@pytest.mark.slow
def test_same_choice_as_the_twin():
    random = np.random.default_rng(4)
    for _ in range(2000):
        arbiter = Arbiter(int(random.integers(0, 5)))
        heads_ps = [int(t) if random.random() < 0.7 else NEVER for t in random.integers(0, 40, STREAMS)]
        last_stream, queued = int(random.integers(-1, STREAMS)), int(random.integers(0, 12))
        limit, age_ps = int(random.choice([1, 5, 10, NEVER])), int(random.choice([0, 20, 45, NEVER]))
        channel = channel_with(arbiter, heads_ps, last_stream)
        channel.mca.limit, channel.mca.age_ps = limit, age_ps
        channel.queued[:] = (queued // 3, queued - queued // 3)
        channel.turn, taken = int(random.choice([Turn.REQUEST, Turn.BURST])), int(random.integers(1, 5))
        channel.turn_taken = taken
        keeps = channel.turn == Turn.BURST and taken < 4
        expected = choice(arbiter, heads_ps, last_stream, keeps, queued, limit, age_ps, 50)
        assert pick_stream(channel, 50) == expected, (arbiter, heads_ps, last_stream, queued, limit, age_ps)


def test_the_thresholds_are_those_of_the_machine():
    def channels(*overrides):
        machine = small_preset(*overrides).machine
        fifos = np.arange(2 * STREAMS).reshape(2, STREAMS)
        none = np.array([-1, -1])
        return make_channels(machine, fifos, np.array([8, 9]), (np.full_like(fifos, -1), none, none))

    fixed = channels("hbm.arbiter=mca_fixed", "mca.threshold=7", "mca.age_limit_ps=123")
    assert set(fixed["mca"]["limit"]) == {7} and set(fixed["mca"]["age_ps"]) == {123}
    chosen_later = channels("hbm.arbiter=mca", "mca.age_limit_ps=0")
    assert set(chosen_later["mca"]["limit"]) == set(chosen_later["mca"]["age_ps"]) == {NEVER}


def test_round_robin_shares_a_full_queue_equally():
    accesses = [Access(Op.READ, 128 * n, 15, stream) for n in range(60) for stream in range(STREAMS)]
    for arbiter in (Arbiter.ROUND_ROBIN, Arbiter.FCFS):
        bench = run_bench(bench_spec("G", "BG", arbiter=arbiter), accesses)
        order = np.argsort(bench.accepted_ps, kind="stable")
        early = np.bincount([accesses[tag].stream for tag in order[:100]], minlength=STREAMS)
        assert (early.max() - early.min() <= 1) == (arbiter == Arbiter.ROUND_ROBIN)


@pytest.mark.parametrize(
    ("turn", "bank_map", "order"),
    [
        (Turn.REQUEST, "BG", "0202020202020202"),
        (Turn.BURST, "BG", "0002220002220022"),  # three in a row
        (Turn.ROW, "RO", "0022220000222200"),  # 2 KiB: the first stream begins in the middle of a row
        (Turn.ROW, "BG", "0000002222222200"),  # four rows side by side: 8 KiB
    ],
)
def test_a_stream_keeps_its_turn_for_a_request_a_burst_or_a_row(turn, bank_map, order):
    lines = {Stream.COMPUTE_READ: 5120, Stream.COMM_READ: 0x100000}
    accesses = [Access(Op.READ, lines[s] + 512 * n, 15, s) for n in range(8) for s in lines]
    turns = {"arbiter": Arbiter.ROUND_ROBIN, "turn": turn, "turn_requests": 3}
    bench = run_bench(bench_spec("G", bank_map, queue=QueueOrganisation.UNIFIED, queue_entries=4, **turns), accesses)
    taken = np.argsort(bench.accepted_ps, kind="stable")
    assert "".join(str(int(accesses[tag].stream)) for tag in taken) == order


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
from tests.support.arbiter_rig import channel_with
from sim.hw.arbiter import pick_stream
from sim.spec import Arbiter
for arbiter in (Arbiter.USER, Arbiter.FCFS):
    print(pick_stream(channel_with(arbiter, [1, 2, 3, 4]), 9))
"""


@pytest.mark.slow
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


REFUSED = """
import os
from tests.support.arbiter_rig import channel_with
from sim.hw.arbiter import pick_stream
from sim.spec import Arbiter
from traces.errors import error_of_policy
try:
    print(pick_stream(channel_with(Arbiter.USER, [1, 2, 3, 4]), 9))
except Exception as error:
    print(error_of_policy(os.environ["T3SIM_POLICY"], error))
"""
OUTSIDE = "pick(channel, now_ps): an index is outside its array, or below 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("return channel.last_stream / 1", "pick(channel, now_ps) returns float64, allowed is a whole number on every"),
        ("if channel.head_ps[0] < 5:\n        return 0", "pick(channel, now_ps) returns OptionalType(int64), allowed"),
        ("return channel.head_ps[channel.last_stream]", OUTSIDE),  # nothing was taken yet
        ("return channel.queued[channel.last_stream + 3]", OUTSIDE),
        ("return np.uint64(2)", "2\n"),
    ],
)
def test_answers_are_whole_numbers_and_indices_are_inside(lines, words, tmp_path):
    policy = tmp_path / "mine.py"
    policy.write_text(f"import numpy as np\n\n\ndef pick(channel, now_ps):\n    {lines}\n")
    environment = {**os.environ, "T3SIM_POLICY": str(policy), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", REFUSED]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    assert words in answer.stdout, answer.stdout


def test_a_policy_that_is_not_there(tmp_path, capsys):
    with pytest.raises(UserError, match="no file"):
        bound_policy(str(tmp_path / "none.py"))
    nameless = tmp_path / "policy"
    nameless.write_text("def pick(channel, now_ps):\n    return -1\n")
    with pytest.raises(UserError, match=r"a policy is a Python file whose name ends in \.py"):
        bound_policy(str(nameless))
    empty = tmp_path / "empty.py"
    empty.write_text("print('found')\n")
    with pytest.raises(UserError, match="no function pick"):
        bound_policy(str(empty))
    assert capsys.readouterr() == ("", "found\n"), "standard output is the answer of a command"
    for parameters in ("channel", "channel, now_ps, more"):
        empty.write_text(f"def pick({parameters}):\n    return -1\n")
        with pytest.raises(UserError, match=rf"found pick\({parameters}\), allowed is pick\(channel, now_ps\)"):
            bound_policy(str(empty))
    (tmp_path / "t3sim_test_neighbour.py").write_text("NONE = -1\n")
    empty.write_text("from t3sim_test_neighbour import NONE\n\n\ndef pick(channel, now_ps):\n    return NONE\n")
    before = list(sys.path)
    assert bound_policy(str(empty)).py_func(None, 0) == -1 and sys.path == before
    broken = tmp_path / "broken.py"
    broken.write_text("def pick(:\n")
    with pytest.raises(UserError, match=r"broken\.py"):
        bound_policy(str(broken))
    for raised in ("SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "ValueError('no')"):
        broken.write_text(f"def check():\n    raise {raised}\n\n\ncheck()\n")
        with pytest.raises(UserError, match=rf"broken\.py:2: {raised.partition('(')[0]}"):
            bound_policy(str(broken))
    with pytest.raises(UserError, match="T3SIM_POLICY"):
        channel_with(Arbiter.USER, [1, 2, 3, 4])
