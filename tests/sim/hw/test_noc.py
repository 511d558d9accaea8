"""Crossbar: port times and latency to the picosecond, back-pressure, order, fairness."""

import numpy as np
import pytest

from sim.hw.peers_record import MESSAGE, News
from sim.hw.request import NEVER, Op
from sim.hw.signals import member, pack_signal
from tests.support.noc_bench import CLOCK_PS, LATENCY_PS, NocBench


@pytest.mark.parametrize(
    ("op", "sectors", "clocks"),
    [(Op.READ, 15, 1), (Op.WRITE, 15, 5), (Op.WRITE, 4, 2), (Op.UPDATE, 3, 3), (Op.ATOMIC, 1, 2)],
)
def test_an_unloaded_request_takes_its_port_and_the_latency(op, sectors, clocks):
    """Header of 8 bytes and 32 per sector that carries data, through a port of 32 bytes per clock."""
    bench = NocBench()
    bench.push("cu.port2", line=bench.line_of(3), ready_ps=700, op=op, sectors=sectors, tag=5)
    assert bench.requests(0, 20_000) == NEVER
    (arrived,) = bench.held("l2.requests3")
    assert arrived["ready_ps"] == 700 + clocks * CLOCK_PS + LATENCY_PS == bench.bank_wake_ps[3]
    assert (arrived["tag"], arrived["bank"]) == (5, 3)
    data_bytes = 0 if op == Op.READ else 32 * bin(sectors).count("1")
    assert bench.node.noc[0]["request_bytes"] == 8 + data_bytes and bench.node.noc[0]["request_packets"] == 1


@pytest.mark.parametrize(("sectors", "clocks"), [(15, 5), (1, 2)])
@pytest.mark.parametrize("fifo", ["l2.hits1", "l2.late1"])
def test_an_unloaded_answer_takes_the_slower_port_and_the_latency(fifo, sectors, clocks):
    bench = NocBench()
    bench.push(fifo, ready_ps=300, sectors=sectors, source=2)
    assert bench.answers(0, 20_000) == NEVER
    (arrived,) = bench.held("cu.answers2")
    assert arrived["ready_ps"] == 300 + clocks * CLOCK_PS + LATENCY_PS == bench.cu_wake_ps[2]


def test_a_load_passes_a_store_whose_cu_port_is_busy():
    """The store to the load's bank is the fourth of its CU. It is not at the bank's port when the load is."""
    bench = NocBench()
    for k in (0, 2, 3, 1):
        bench.push("cu.port0", line=bench.line_of(k), op=Op.WRITE)
    bench.push("cu.port1", line=bench.line_of(1), ready_ps=CLOCK_PS, source=1)
    assert bench.requests(0, 15_000) == 15 * CLOCK_PS  # the store cannot leave earlier
    (load,) = bench.held("l2.requests1")
    assert load["source"] == 1 and load["ready_ps"] == 2 * CLOCK_PS + LATENCY_PS
    assert bench.requests(15_000, 30_000) == NEVER
    assert bench.held("l2.requests1")["ready_ps"][1] == 4 * 5 * CLOCK_PS + LATENCY_PS


def test_an_answer_passes_one_whose_bank_port_is_busy():
    """Four answers of bank 0, the last for CU 1. It is not at the CU's port when that of bank 1 is."""
    bench = NocBench()
    for source in (0, 2, 3, 1):
        bench.push("l2.hits0", source=source)
    bench.push("l2.hits1", ready_ps=CLOCK_PS, source=1, tag=7)
    assert bench.answers(0, 15_000) == 15 * CLOCK_PS
    (answer,) = bench.held("cu.answers1")
    assert answer["tag"] == 7 and answer["ready_ps"] == 6 * CLOCK_PS + LATENCY_PS
    assert bench.answers(15_000, 30_000) == NEVER
    assert bench.held("cu.answers1")["ready_ps"][1] == 4 * 5 * CLOCK_PS + LATENCY_PS


def test_packets_go_in_the_order_of_their_times_whoever_sends_them():
    bench = NocBench()
    for c, ready_ps in enumerate((15_000, 5_000, 10_000, 100)):
        bench.push(f"cu.port{c}", line=bench.line_of(2), ready_ps=ready_ps, tag=c)
    bench.requests(0, 20_000)
    assert list(bench.held("l2.requests2")["tag"]) == [3, 1, 2, 0]


def cluster_of(bench, cus):
    """A cluster with one workgroup on each of these CUs, in place 0; its mail has 16 places."""
    bench.node = bench.node._replace(mail=np.zeros((4, 16), MESSAGE))
    for rank, c in enumerate(cus):
        resident = bench.node.cus[c]["resident"][0]
        resident["tag"], resident["rank"], resident["size"], resident["cluster"] = rank, rank, len(cus), 7
        resident["members"][: len(cus)] = [int(member(other, 0)) for other in cus]


@pytest.mark.parametrize("ranks", [0b111, 0b110, 0b011, 0b100, 0b001])
def test_a_multicast_line_comes_to_each_cu_at_its_port(ranks):
    """CU 2 is rank 1 and takes another answer first. CU 0 has asked: it is answered when all have the data."""
    bench = NocBench("cu.groups=1", "cu.peer_latency_clk=30")
    cluster_of(bench, [0, 2, 3])
    bench.push("l2.hits1", ready_ps=0, source=2)
    bench.push("l2.hits0", ready_ps=1_000, source=0, share=pack_signal(ranks, 0, 5, 100))
    bench.answers(0, 20_000)
    packet, bank = 3, 5  # clocks at the port of a CU and of a bank
    in_clk = [1 + bank, max(1 + bank, bank + packet), 1 + bank]  # the first answer has passed CU 2's port at clock 5
    ready_ps = [clocks * CLOCK_PS + LATENCY_PS for clocks in in_clk]
    for rank, c in enumerate([0, 2, 3]):
        told = rank > 0 and bool(ranks >> rank & 1)
        peer, letter = bench.node.peers[c], bench.node.mail[c][0]
        assert int(peer["multicast_bytes"]) == (100 if told else 0) and int(peer["waiting"]) == int(told or rank == 0)
        if told:
            assert [int(letter[f]) for f in ("ready_ps", "news", "ranks", "barrier", "number", "cluster")] == [
                *(ready_ps[rank], News.BYTES, 1 << rank, 5, 100, 7),
            ]
    answered_ps = max(ready_ps[rank] for rank in range(3) if rank == 0 or ranks >> rank & 1)
    answer = bench.node.mail[0][0]
    assert (int(answer["news"]), int(answer["ready_ps"])) == (News.ANSWER, answered_ps)
    assert bench.cu_wake_ps[0] == answered_ps and not len(bench.held("cu.answers0"))


@pytest.mark.parametrize(("ranks", "in_clk", "headers", "packets"), [(0b01, 6, 0, 1), (0b11, 6, 0, 1), (0b10, 9, 1, 1)])
def test_workgroups_of_one_cu_share_the_multicast_line(ranks, in_clk, headers, packets):
    """CU 0 has both workgroups. If only the other one gets the data, they follow the answer to the one that asked."""
    bench = NocBench("cu.groups=1", "cu.peer_latency_clk=30")
    cluster_of(bench, [0])
    for place in range(2):
        resident = bench.node.cus[0]["resident"][place]
        resident["tag"], resident["rank"], resident["size"], resident["cluster"] = place, place, 2, 7
        resident["members"][:2] = [int(member(0, other)) for other in range(2)]
    bench.push("l2.hits0", ready_ps=1_000, source=0, share=pack_signal(ranks, 0, 5, 100))
    bench.answers(0, 20_000)
    noc, mail = bench.node.noc[0], bench.node.mail[0][: int(bench.node.peers[0]["waiting"])]
    header_bytes = int(noc["header_bytes"])
    assert int(noc["cu_in_ps"][0]) == in_clk * CLOCK_PS
    assert int(noc["cu_bytes"]) == headers * header_bytes + packets * (header_bytes + 128)
    assert mail["ready_ps"].tolist() == [in_clk * CLOCK_PS + LATENCY_PS] * len(mail)
    assert mail["ranks"].tolist() == ([0b10, 0] if ranks & 0b10 else [0])


def test_a_bank_has_places_for_what_waits_for_what_crosses_and_for_credits():
    bench = NocBench("noc.bank_fifo=64")
    credit_clk = -(-bench.node.engine[0]["lookahead_ps"] // CLOCK_PS)
    assert bench.node.fifos[bench.number("l2.requests0")]["limit"] == 64 + 30 + credit_clk


def test_a_full_bank_refuses_and_keeps_the_order():
    bench = NocBench(bank_places=2)
    full, other = bench.line_of(0), bench.line_of(1)
    for tag in range(4):
        bench.push("cu.port0", line=full if tag < 3 else other, tag=tag)
    bench.push("cu.port1", line=other, tag=9)
    assert bench.requests(0, 20_000) == NEVER  # nobody knows yet when the third can go
    assert list(bench.held("l2.requests0")["tag"]) == [0, 1]
    assert list(bench.held("l2.requests1")["tag"]) == [9]  # the fourth waits behind the third
    assert bench.node.noc[0]["refused"] == 1
    bench.drop("l2.requests0", 1, room_ps=33_000)
    assert bench.wake_ps() == 33_000 == bench.requests(20_000, 33_000)
    assert list(bench.held("l2.requests0")["tag"]) == [1]
    assert bench.requests(33_000, 53_000) == NEVER == bench.wake_ps()
    assert list(bench.held("l2.requests0")["tag"]) == [1, 2] and list(bench.held("l2.requests1")["tag"]) == [9, 3]
    assert bench.held("l2.requests0")["ready_ps"][1] == 33_000 + CLOCK_PS + LATENCY_PS  # not back-dated


def test_cus_that_want_one_bank_get_equal_shares():
    """Answers cross in the same windows; the bank takes two requests in each."""
    bench = NocBench(bank_places=2)
    line, sent = bench.line_of(0), np.zeros(4, int)
    for window in range(80):
        for c in range(4):
            while len(bench.held(f"cu.port{c}")) < 4:
                bench.push(f"cu.port{c}", line=line, source=c)
        bench.push("l2.hits2", source=1, ready_ps=window * 20_000)
        bench.requests(window * 20_000, (window + 1) * 20_000)
        bench.answers(window * 20_000, (window + 1) * 20_000)
        for c in bench.held("l2.requests0")["source"]:
            sent[c] += 1
        bench.drop("l2.requests0", len(bench.held("l2.requests0")), (window + 1) * 20_000)
        bench.drop("cu.answers1", len(bench.held("cu.answers1")))
    assert sent.sum() == 160 and sent.max() - sent.min() <= 4, sent


def test_a_full_link_holds_its_cu_and_no_other():
    bench = NocBench("link.egress_fifo=1", links=2)
    for tag, link in ((0, 1), (1, 1), (2, 0)):
        bench.push("cu.port0", line=bench.line_of(0), op=Op.UPDATE, tag=tag, link=link)
    bench.push("cu.port1", line=bench.line_of(0), op=Op.UPDATE, tag=3, link=2)
    assert bench.requests(0, 20_000) == NEVER
    assert list(bench.held("link.stores0")["tag"]) == [0] and list(bench.held("link.stores1")["tag"]) == [3]
    assert len(bench.held("l2.requests0")) == 0  # the load behind the store waits with it
    assert bench.node.noc[0]["refused"] == 1
    bench.drop("link.stores0", 1, room_ps=20_000)
    assert bench.requests(20_000, 40_000) == NEVER
    assert list(bench.held("link.stores0")["tag"]) == [1] and list(bench.held("l2.requests0")["tag"]) == [2]
    # It leaves now: what is told to another GPU must not lie in the past.
    assert bench.held("link.stores0")["ready_ps"][0] == 20_000 + 5 * CLOCK_PS + LATENCY_PS


def test_a_full_link_holds_the_bulk_copies_of_a_cu_but_not_its_loads():
    """They share the bytes of the CU's port: a copy leaves when the load has passed, and the next copy after it."""
    bench = NocBench("link.egress_fifo=1", "cu.bulk_lines_per_clk=1.0", links=1)
    for tag in (0, 1):
        bench.push("cu.leave_port1", line=bench.line_of(0), op=Op.UPDATE, tag=tag, link=1, source=1)
    bench.push("cu.port1", line=bench.line_of(0), op=Op.READ, tag=2, source=1)
    bench.push("cu.port1", line=bench.line_of(0), op=Op.WRITE, tag=3, source=1)
    assert bench.requests(0, 30_000) == NEVER
    assert list(bench.held("link.stores0")["tag"]) == [0] and list(bench.held("l2.requests0")["tag"]) == [2, 3]
    clocks = 1 + 5 + 5  # a header of 8 bytes, then twice 136 bytes at 32 per clock; the copy after the load and store
    assert bench.held("link.stores0")["ready_ps"][0] == clocks * CLOCK_PS + LATENCY_PS
    assert list(bench.held("cu.leave_port1")["tag"]) == [1]
    bench.drop("link.stores0", 1, room_ps=40_000)
    bench.requests(30_000, 60_000)
    assert list(bench.held("link.stores0")["tag"]) == [1]
    assert bench.held("link.stores0")["ready_ps"][0] == 40_000 + 5 * CLOCK_PS + LATENCY_PS
