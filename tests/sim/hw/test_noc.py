"""Crossbar: port times and latency to the picosecond, back-pressure, order, fairness."""

import numpy as np
import pytest

from sim.hw.noc import home_place
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


def test_a_cu_port_sends_one_packet_after_the_other():
    bench = NocBench()
    for k in range(4):
        bench.push("cu.port0", line=bench.line_of(k), op=Op.WRITE)
    bench.requests(0, 20_000)
    assert [int(bench.held(f"l2.requests{k}")["ready_ps"][0]) for k in range(4)] == [
        5 * CLOCK_PS * (k + 1) + LATENCY_PS for k in range(4)
    ]


def test_a_bank_port_takes_one_packet_after_the_other():
    bench = NocBench()
    for c in range(4):
        bench.push(f"cu.port{c}", line=bench.line_of(1), op=Op.WRITE)
    bench.requests(0, 20_000)
    assert list(bench.held("l2.requests1")["ready_ps"]) == [5 * CLOCK_PS * (k + 1) + LATENCY_PS for k in range(4)]


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


def test_answers_of_one_bank_share_its_port_and_those_to_one_cu_share_its():
    one_bank, one_cu = NocBench(), NocBench()
    for k in range(4):
        one_bank.push("l2.hits0", source=k)
        one_cu.push(f"l2.hits{k}", source=0)
    one_bank.answers(0, 20_000)
    assert [int(one_bank.held(f"cu.answers{k}")["ready_ps"][0]) for k in range(4)] == [
        5 * CLOCK_PS * (k + 1) + LATENCY_PS for k in range(4)
    ]
    one_cu.answers(0, 20_000)
    first_ps = 5 * CLOCK_PS + LATENCY_PS  # then three clocks each: 136 bytes at 64 per clock
    assert list(one_cu.held("cu.answers0")["ready_ps"]) == [first_ps + 3 * CLOCK_PS * k for k in range(4)]


def test_an_acknowledgement_takes_room_from_the_answers_behind_it():
    """Of a store of four sectors, 40 bytes each: five clocks of the bank's port, then the read's two."""
    bench = NocBench("noc.ack_bytes=40")
    bench.push("l2.hits1", ready_ps=300, op=Op.WRITE, source=2)
    bench.push("l2.hits1", ready_ps=300, sectors=1, source=2)
    assert bench.answers(0, 20_000) == NEVER
    assert list(bench.held("cu.answers2")["ready_ps"]) == [300 + 7 * CLOCK_PS + LATENCY_PS]
    assert bench.node.noc[0]["last_ack_ps"] == 300 + 5 * CLOCK_PS + LATENCY_PS


def test_the_answer_to_a_load_of_another_gpu_goes_to_the_link_over_which_it_is_reached():
    """136 bytes: five clocks of the bank's port. No CU's port is occupied."""
    bench = NocBench(links=2)
    bench.push("l2.hits1", ready_ps=300, source=2, link=2, load=7)
    bench.push("l2.late3", ready_ps=300, source=2)
    assert bench.answers(0, 20_000) == NEVER
    (data,) = bench.held("link.loads1")
    assert (data["op"], data["ready_ps"]) == (Op.DATA, 300 + 5 * CLOCK_PS + LATENCY_PS)
    assert (data["load"], data["source"]) == (7, 2) and len(bench.held("link.loads0")) == 0
    assert list(bench.held("cu.answers2")["ready_ps"]) == [300 + 5 * CLOCK_PS + LATENCY_PS]


def test_data_that_a_link_brings_share_the_port_of_the_cu_with_the_answers_of_banks():
    bench = NocBench(links=1)
    bench.push("l2.hits0", ready_ps=300, source=2)
    for ready_ps in (300, 20_000):
        bench.push("link.data0", ready_ps=ready_ps, source=2, op=Op.DATA, link=1, load=7)
    assert bench.answers(0, 20_000) == 20_000
    answers = bench.held("cu.answers2")
    assert list(answers["ready_ps"]) == [300 + 5 * CLOCK_PS + LATENCY_PS, 300 + 8 * CLOCK_PS + LATENCY_PS]
    assert (answers[1]["op"], answers[1]["link"], answers[1]["load"]) == (Op.READ, 0, 7)
    fifo = bench.node.fifos[bench.number("link.data0")]
    assert bench.node.pool.credits_ps[fifo["first"]] == 300 + fifo["credit_ps"]  # its place is free
    assert bench.answers(20_000, 40_000) == NEVER and len(bench.held("cu.answers2")) == 3


def test_a_packet_leaves_in_the_window_of_its_time():
    bench = NocBench()
    bench.push("cu.port0", line=bench.line_of(0), ready_ps=20_000)
    assert bench.requests(0, 20_000) == 20_000 and len(bench.held("l2.requests0")) == 0
    assert bench.requests(20_000, 40_000) == NEVER and len(bench.held("l2.requests0")) == 1


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


@pytest.mark.parametrize(("clock", "order"), [(0, [0, 1]), (1, [1, 0])])
def test_the_clocks_number_selects_the_bank_whose_answer_goes_first(clock, order):
    bench = NocBench()
    for bank in range(2):
        bench.push(f"l2.hits{bank}", ready_ps=clock * CLOCK_PS, source=2, tag=bank)
    bench.answers(0, 20_000)
    assert bench.held("cu.answers2")["tag"].tolist() == order


def test_copies_for_a_bank_take_its_port_one_after_the_other():
    """Between the partitions, past the ports of the banks; 16 bytes per clock."""
    bench = NocBench("l2.partitions=2", "l2.sharing=copies", "l2.far_latency_clk=9", "l2.far_bytes_per_clk=16")
    cus = int(bench.node.noc[0]["cus"])
    for bank in range(2):
        bench.push(f"l2.hits{bank}", ready_ps=300, source=cus + 2)
    bench.answers(0, 40_000)
    port_ps = 9 * CLOCK_PS  # 8 + 128 bytes
    assert bench.held("l2.copy_fills2")["ready_ps"].tolist() == [
        300 + port_ps + 9 * CLOCK_PS,
        300 + 2 * port_ps + 9 * CLOCK_PS,
    ]


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


def test_the_room_of_a_bank_goes_to_the_requests_in_the_order_in_which_they_asked():
    bench = NocBench(bank_places=2)
    for c, ready_ps in enumerate((9_000, 1_000, 5_000, 12_000)):
        for k in range(2):
            bench.push(f"cu.port{c}", line=bench.line_of(0), ready_ps=ready_ps, tag=10 * c + k)
    bench.requests(0, 20_000)
    assert list(bench.held("l2.requests0")["tag"]) == [10, 11]
    bench.drop("l2.requests0", 2, room_ps=31_000)
    bench.requests(20_000, 40_000)
    assert list(bench.held("l2.requests0")["tag"]) == [20, 0] or list(bench.held("l2.requests0")["tag"]) == [0, 20]
    bench.drop("l2.requests0", 2, room_ps=61_000)
    bench.requests(60_000, 80_000)
    assert sorted(bench.held("l2.requests0")["tag"]) == [21, 30] or sorted(bench.held("l2.requests0")["tag"]) == [1, 30]


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


def test_answers_of_a_bank_to_one_cu_stay_in_order():
    bench = NocBench()
    for tag in range(30):
        bench.push("l2.hits0", ready_ps=tag * 100, source=3, tag=tag, sectors=1 + tag % 15)
    for begin_ps in range(0, 120_000, 20_000):
        bench.answers(begin_ps, begin_ps + 20_000)
    arrived = bench.held("cu.answers3")
    assert list(arrived["tag"]) == list(range(30)) and (np.diff(arrived["ready_ps"]) >= 0).all()


def test_a_store_to_another_gpu_takes_its_port_and_the_latency_to_its_link():
    bench = NocBench(links=2)
    bench.push("cu.port1", line=bench.line_of(0), ready_ps=700, op=Op.UPDATE, sectors=15, tag=5, link=2)
    assert bench.requests(0, 20_000) == NEVER
    (left,) = bench.held("link.stores1")
    assert left["ready_ps"] == 700 + 5 * CLOCK_PS + LATENCY_PS and left["tag"] == 5
    assert bench.node.noc[0]["request_bytes"] == 8 + 128
    assert not any(len(bench.held(f"l2.requests{b}")) for b in range(4))
    assert (bench.bank_wake_ps == NEVER).all()


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


def test_a_bulk_copy_waits_again_if_its_cu_has_used_the_port_meanwhile():
    bench = NocBench("cu.bulk_lines_per_clk=1.0", links=1)
    for tag, ready_ps in ((0, 0), (1, 0), (2, 8_000)):  # five clocks of the port each
        bench.push("cu.port0", line=bench.line_of(tag), op=Op.WRITE, tag=tag, ready_ps=ready_ps)
    bench.push("cu.leave_port0", line=bench.line_of(0), op=Op.UPDATE, tag=3, link=1)
    bench.requests(0, 12_000)  # it could leave at 10 clocks, but the third write has booked the port up to 15
    assert list(bench.held("cu.leave_port0")["tag"]) == [3] and len(bench.held("cu.port0")) == 0
    bench.requests(12_000, 24_000)
    assert list(bench.held("link.stores0")["tag"]) == [3]
    assert bench.held("link.stores0")["ready_ps"][0] == 20 * CLOCK_PS + LATENCY_PS


def test_stores_stand_in_the_link_fifo_in_the_order_in_which_they_left():
    """A CU whose port is booked beyond the window waits: nobody's later store stands before a sooner one."""
    bench = NocBench("link.egress_fifo=64", links=1)
    for k in range(10):
        for c in range(3):
            bench.push(f"cu.port{c}", ready_ps=100 * c, op=Op.UPDATE, tag=10 * c + k, link=1)
    for window in range(8):
        bench.requests(window * 20_000, (window + 1) * 20_000)
        left_ps = bench.held("link.stores0")["ready_ps"] - LATENCY_PS
        assert (left_ps < (window + 1) * 20_000 + 5 * CLOCK_PS).all()
    held = bench.held("link.stores0")
    assert len(held) == 30
    for c in range(3):
        own = held[held["tag"] // 10 == c]
        assert list(own["tag"]) == [10 * c + k for k in range(10)]
        assert list(own["ready_ps"]) == [100 * c + 5 * CLOCK_PS * (k + 1) + LATENCY_PS for k in range(10)]
    assert (np.diff(held["ready_ps"]) >= 0).all()


def test_requests_of_later_windows_go_to_their_own_banks_and_sets():
    bench = NocBench()
    for k in range(8):  # two in each window
        bench.push("cu.port0", line=bench.line_of(k % 4, nth=k), ready_ps=k * 10_000, tag=k)
    for begin_ps in range(0, 100_000, 20_000):
        bench.requests(begin_ps, begin_ps + 20_000)
    for bank in range(4):
        held = bench.held(f"l2.requests{bank}")
        assert held["tag"].tolist() == [bank, bank + 4] and (held["bank"] == bank).all()
        assert [home_place(bench.noc, int(line)) for line in held["line"]] == [
            (bank, each) for each in held["cache_set"]
        ]
