"""Nodes: the kind of each link between two GPUs, what shares a card, and times over links of two kinds."""

import pytest

from sim.collective.topology import in_one_node
from sim.host.cluster import Cluster, round_ps
from sim.hw.link_record import FS_PER_NS
from sim.run.shares import shares
from tests.support.t3_cases import FOUR_WARPS, T3Case
from traces.errors import UserError

NETWORK = ("network.GB_per_s=12.5", "network.latency_ps=1700000", "network.credits=77", "network.header_bytes=16")
SAME = ("network.GB_per_s=150.0", "network.latency_ps=500000", "network.credits=2048")


def case(*settings, gpus=4):
    return T3Case(192, 192, 64, gpus, FOUR_WARPS, settings=settings)


@pytest.mark.parametrize("topology", ["ring", "switch", "fully_connected"])
@pytest.mark.parametrize(("gpus", "per_node"), [(4, 2), (5, 2), (3, 1)])
def test_each_link_has_the_kind_of_its_pair(topology, gpus, per_node):
    settings = (f"link.topology={topology}", f"network.node_gpus={per_node}", *NETWORK)
    _, joined = case(*settings, gpus=gpus).run("ag")
    link, network = joined.machine.link, joined.machine.network
    for number, gpu in enumerate(joined.gpus):
        kinds, ports = [], gpu.node.ports
        for port, distance in zip(ports, joined.distances, strict=True):
            there, source = (number + distance) % gpus, (number - distance) % gpus
            out, into = (network if other // per_node != number // per_node else link for other in (there, source))
            kinds.append((out, into))
            found = [port[name] for name in ("latency_ps", "credits", "header_bytes", "in_header_bytes")]
            assert found == [out.latency_ps, out.credits, out.header_bytes, into.header_bytes]
            assert (port["fs_per_byte"], port["in_fs_per_byte"]) == tuple(
                round(FS_PER_NS / k.GB_per_s) for k in (out, into)
            )
        for name, way in (("lane", 0), ("in_lane", 1)):
            for one, a in zip(ports[name], kinds, strict=True):
                for two, b in zip(ports[name], kinds, strict=True):
                    shared = a is b or (a[way] is b[way] and (a[way] is network or topology == "switch"))
                    assert (one == two) == shared


@pytest.mark.parametrize("part", ["rs", "all_reduce", "t3"])
def test_a_network_like_the_links_changes_nothing_in_a_ring(part):
    (near, joined), (far, _) = (case(f"network.node_gpus={count}", *SAME).run(part) for count in (0, 1))
    busiest_ps = max(gpu.node.ports["busy_ps"].max() for gpu in joined.gpus)
    assert far.exactly_once and far.time_ps == near.time_ps
    assert far.figures == near.figures | {"link_busy_ps": 0, "network_busy_ps": busiest_ps}


@pytest.mark.parametrize("topology", ["ring", "switch", "fully_connected"])
def test_links_and_card_of_the_busiest_gpu_are_shown(topology):
    """GPU 0 of a ring sends within its node only. The links of a GPU to other nodes share its card."""
    found, joined = case(f"link.topology={topology}", "network.node_gpus=2", *NETWORK).run("ag")
    busy_ps = {"link": [], "network": []}
    for gpu in joined.gpus:
        card = gpu.node.ports["latency_ps"] == 1_700_000
        busy_ps["link"].append(gpu.node.ports["busy_ps"][~card].max())
        busy_ps["network"].append(gpu.node.ports["busy_ps"][card].sum())
    for unit, times_ps in busy_ps.items():
        assert found.figures[f"{unit}_busy_ps"] == max(times_ps) > 0
    assert shares(found)["network"] == max(busy_ps["network"]) / found.kernels[0].time_ps > 2 * shares(found)["link"]
    assert topology != "ring" or busy_ps["network"][0] == 0


@pytest.mark.parametrize("topology", ["ring", "switch"])
def test_a_slow_network_sets_the_pace(topology):
    slow = case(f"link.topology={topology}", "network.node_gpus=2", *NETWORK, "network.GB_per_s=1.0")
    result, joined = slow.run("rs")
    crossing = max(sum(int(p["bytes"]) for p in gpu.node.ports if p["latency_ps"] == 1_700_000) for gpu in joined.gpus)
    assert result.exactly_once
    assert result.time_ps > crossing * 1000 > case(f"link.topology={topology}").run("rs")[0].time_ps


def test_a_round_is_no_longer_than_the_shorter_latency():
    for link_ps, network_ps in ((500_000, 300_700), (300_700, 500_000)):
        machine = case(f"link.latency_ps={link_ps}", f"network.latency_ps={network_ps}").machine
        assert round_ps(machine, 1000) == 300_000


def test_a_node_may_hold_all_gpus():
    found = [in_one_node(case(f"network.node_gpus={count}").machine, 4) for count in (0, 3, 4, 5)]
    assert found == [True, False, True, True]


def test_one_gpu_for_all_is_refused_in_nodes():
    (plan,) = case("network.node_gpus=2").run("ag")[1].plans[:1]
    with pytest.raises(UserError, match="symmetric: nodes of 2 GPUs have two kinds of links: run all GPUs"):
        Cluster(case("network.node_gpus=2").machine, [plan], symmetric=True)


def test_a_cache_that_keeps_what_arrives_is_refused():
    with pytest.raises(UserError, match=r"msc.write_back: found true, allowed is false for joined GPUs"):
        case("msc.present=true", "msc.bytes=16384", "msc.ways=4", "msc.write_back=true").run("ag")


def test_a_machine_without_that_cache_keeps_nothing():
    assert case("msc.write_back=true").run("ag")[0].time_ps == case().run("ag")[0].time_ps
