"""The check at the end of a run: a clean machine passes, whatever is left over, negative or unserved is named."""

import pytest

from sim.host.gpu import Gpu
from sim.hw.arbiter import _checked
from sim.hw.request import NEVER
from sim.machine.rest import ConservationError, PolicyError, check_policy, check_rest
from sim.spec import Arbiter
from tests.support.arbiter_rig import channel_with
from tests.support.programs import kernel, load, small_preset, store


@pytest.fixture(scope="module")
def run_gpu():
    gpu = Gpu(small_preset().machine)
    gpu.run_kernel(kernel([[[load(0, slot=1), store(1 << 20, wait=[1])]] for _ in range(9)]), 0, None)
    return gpu


@pytest.mark.parametrize(
    ("records", "field", "value", "words"),
    [
        ("fifos", "tail", 1, "fifo cu.port0 holds 1"),
        ("lsus", "loads_used", 2, "2 loads that wait for data"),
        ("l1s", "entries_used", 1, "1 L1 misses under way"),
        ("banks", "misses_used", 1, "1 L2 misses under way"),
        ("banks", "reads_out", -1, "-1 reads of L2 under way"),
        ("channels", "queued", 4, "entries in DRAM queues"),
        ("cus", "residents", 1, "1 workgroups on CUs"),
        ("channels", "read_columns", -1000, "hbm.read_columns is -"),
        ("banks", "requests_served", 3, "requests crossed the NoC, L2 served"),
        ("banks", "requests_served", -1, "requests crossed the NoC, L2 served"),
    ],
)
def test_what_is_not_conserved_is_named(run_gpu, records, field, value, words):
    node = run_gpu.node
    check_rest(node, run_gpu.fifo_names, "k")
    changed = getattr(node, records)
    kept = changed[field][0].copy()
    try:
        changed[field][0] += value
        with pytest.raises(ConservationError, match=r"k: not conserved: .*this run has no result") as refused:
            check_rest(node, run_gpu.fifo_names, "k")
        assert words in str(refused.value)
    finally:
        changed[field][0] = kept
    check_rest(node, run_gpu.fifo_names, "k")


@pytest.mark.parametrize(
    ("settings", "records", "field", "words"),
    [
        (("msc.present=true", "msc.bytes=65536"), "mscs", "misses_used", "1 misses of the memory-side cache under way"),
        (("cu.groups=2", "cu.peer_latency_clk=20"), "peers", "waiting", "1 messages to CUs of a cluster"),
    ],
)
def test_what_only_some_machines_have_must_be_empty_too(settings, records, field, words):
    gpu = Gpu(small_preset(*settings).machine)
    check_rest(gpu.node, gpu.fifo_names, "k")
    getattr(gpu.node, records)[field][0] = 1
    with pytest.raises(ConservationError, match=words):
        check_rest(gpu.node, gpu.fifo_names, "k")


def test_one_less_than_nothing_is_no_count(run_gpu):
    banks = run_gpu.node.banks
    kept = banks["flush_sectors"][1].copy()
    banks["flush_sectors"][1] = -1
    try:
        with pytest.raises(ConservationError, match=r"l2\.flush_sectors is -1"):
            check_rest(run_gpu.node, run_gpu.fifo_names, "k")
    finally:
        banks["flush_sectors"][1] = kept


@pytest.mark.parametrize(("answer", "taken"), [(-1, -1), (1, 1), (0, -1), (4, -1), (-2, -1), (1 << 40, -1)])
def test_only_a_waiting_stream_or_none_is_taken(answer, taken):
    channel = channel_with(Arbiter.FCFS, [NEVER, 5, 7, NEVER])
    assert _checked(channel, answer, 9) == taken
    _checked(channel, 3, 10)  # the first wrong answer counts
    first = (answer, 9) if taken != answer else (3, 10)
    assert (channel["wrong_stream"], channel["wrong_ps"]) == first


def test_a_wrong_answer_names_policy_time_and_answer(run_gpu, monkeypatch):
    monkeypatch.setenv("T3SIM_POLICY", "mine.py")
    channels = run_gpu.node.channels
    channels["wrong_stream"], channels["wrong_ps"] = [7, 0], [900, 400]
    words = r"mine\.py: pick\(channel, now_ps\) returned 0 at 400 ps in channel 1, allowed is a stream from 0 to 3"
    try:
        with pytest.raises(PolicyError, match=words):
            check_policy(run_gpu.node)
    finally:
        channels["wrong_ps"] = NEVER
    check_policy(run_gpu.node)
