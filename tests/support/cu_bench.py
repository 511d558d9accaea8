"""One compute unit on the bench: load/store unit, L1, warps, a port that a memory of fixed latency empties."""

from typing import NamedTuple

import numpy as np

from sim.hw.bulk import bulk_retry_ps
from sim.hw.cu import cu_step
from sim.hw.dispatcher import dispatch_step
from sim.hw.fifo import fifo_push_copy
from sim.hw.lsu import lsu_retry_ps
from sim.hw.request import NEVER, REQUEST, Op
from sim.machine.build import Output, build
from sim.machine.engine_record import WORKGROUP_ASKS
from sim.machine.tracking import serve_asks
from tests.support.plain_records import kernel_view
from tests.support.programs import kernel, small_preset

CLOCK_PS = 1000
ONE_CU = (
    *("cu.count=1", "l2.banks=1", "hbm.channels=1", f"cu.clock_MHz={1e6 / CLOCK_PS}", "dispatch.workgroup_ps=0"),
    *("l1.latency_clk=30", "cu.shared_latency_clk=20", "cu.schedulers=4", "cu.issue_per_clk=1.0"),
)


class Bench(NamedTuple):
    requests: np.ndarray  # REQUEST, in the order in which they left
    cu: np.void
    lsu: np.void
    bulk: np.void
    l1: np.void
    exit_ps: int
    states: np.ndarray  # of all warp places

    def left_ps(self, line):
        """When the requests for a line left the unit."""
        return [int(r["ready_ps"]) for r in self.requests if r["line"] == line]

    def issued_ps(self, line):
        """When the events that asked for a line had their turn."""
        return [int(r["born_ps"]) for r in self.requests if r["line"] == line]


def run_cu(
    workgroups,
    *overrides,
    memory_ps=100_000,
    port_open_ps=0,
    places=None,
    warps=None,
    output=None,
    comm=False,
    shifts=(),
):
    """Run workgroups (as `programs.kernel` takes them) on one CU.

    Args:
        memory_ps: from a request's departure to its answer.
        port_open_ps: nothing leaves the port before.
        output: address-space configuration; None = nothing is tracked and nothing leaves the GPU.
        comm: the kernel is a collective's.
        shifts: bytes by which each workgroup's addresses lie above those of its events.
    """
    node, _ = build(small_preset(*overrides, size=ONE_CU).machine)
    source = kernel(workgroups, warps=warps)
    node = _stage(node, source, places or len(source.items))._replace(output=output or node.output)
    node.dispatch[0]["comm"] = comm
    node.staged[0]["shift_bytes"][: len(shifts), 0] = shifts
    fifos, pool = kernel_view(node.fifos), kernel_view(node.pool)
    arrays = (node.cus, node.lsus, node.bulks, node.l1s)
    cu, lsu, bulk, l1 = (kernel_view(array)[0] for array in arrays)
    node.leaving["noc_port"] = node.bulks["noc_port"]  # its copies are seen at the same port
    leaving = kernel_view(node.leaving)[0]
    sets, warps, events, addresses = map(kernel_view, (node.l1_sets, node.warps, node.events, node.addresses))
    peer, mail = kernel_view(node.peers)[0], kernel_view(node.mail)
    output = Output(*map(kernel_view, node.output))
    view = type(node)(*(one if isinstance(one, tuple) else kernel_view(one) for one in node))._replace(output=output)
    port, answers = node.fifos[node.lsus[0]["port"]], fifos[int(node.cus[0]["answers"])]
    left, now_ps = [], 0
    while now_ps < NEVER:
        _dispatch(node, now_ps)
        units = cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps[0], peer, mail
        wake_ps = int(cu_step(*units, events, addresses, output, now_ps, now_ps + 1))
        if node.cus[0]["asking"]:
            node.news[0] = WORKGROUP_ASKS
            serve_asks(view, now_ps + 1)
            wake_ps = min(wake_ps, int(node.cu_told_ps[0]))
            node.cu_told_ps[0] = NEVER
        if node.cus[0]["ended"]:
            node.cus["ended"], node.dispatch[0]["wake_ps"] = 0, now_ps + CLOCK_PS
            wake_ps = now_ps + CLOCK_PS
        while port["tail"] > port["head"] and now_ps >= port_open_ps:
            slot = port["first"] + ((port["head"] - port["origin"]) & port["mask"])
            request = node.pool.requests[slot].copy()
            node.pool.credits_ps[port["first"] + (port["head"] & port["room"])] = now_ps + CLOCK_PS
            port["head"] += 1
            left.append(request)
            awaited = request["load"] >= 0 and request["link"] == 0  # or a store whose warp waits
            if request["op"] in (Op.READ, Op.ATOMIC) or awaited:
                carrier = np.array([request])
                fifo_push_copy(answers, pool, kernel_view(carrier)[0], int(request["ready_ps"]) + memory_ps)
                wake_ps = min(wake_ps, int(request["ready_ps"]) + memory_ps)
        wake_ps = min(wake_ps, int(lsu_retry_ps(lsu, fifos, pool)), int(bulk_retry_ps(bulk, fifos, pool)))
        wake_ps = min(wake_ps, int(bulk_retry_ps(leaving, fifos, pool)))
        if port["tail"] > port["head"]:
            wake_ps = min(wake_ps, max(port_open_ps, now_ps + 1))
        now_ps = max(wake_ps, now_ps + 1)
    requests = np.array(left, REQUEST)
    ends = int(node.cus[0]["last_exit_ps"]), node.warps[0]["warp"]["state"]
    return Bench(requests, *(array[0] for array in arrays), *ends)


def _stage(node, source, places):
    """The node with all workgroups in its trace window and a dispatcher that deals them at time 0."""
    events = max(len(item.events) for item in source.items)
    addresses = max(1, *(len(item.addresses) for item in source.items))
    node = node._replace(
        events=np.zeros((len(source.items), events), node.events.dtype),
        addresses=np.zeros((len(source.items), addresses), np.uint64),
    )
    for k, item in enumerate(source.items):
        node.events[k, : len(item.events)], node.addresses[k, : len(item.addresses)] = item.events, item.addresses
        staged = node.staged[0][k]
        staged["tag"], staged["slab"], staged["warps"] = item.index, k, len(item.warp)
        staged["warp"][: len(item.warp)], staged["first_event"][: len(item.warp)] = item.warp, item.first_event[:-1]
    dispatch = node.dispatch[0]
    dispatch["last_cu"], dispatch["places"], dispatch["warps"] = 1, places, source.info.warps_per_workgroup
    dispatch["staged"], dispatch["ended"], dispatch["lookahead_ps"] = len(source.items), 1, CLOCK_PS
    return node


def _dispatch(node, now_ps):
    dispatches, cus, warps = kernel_view(node.dispatch), kernel_view(node.cus), kernel_view(node.warps)
    while node.dispatch[0]["wake_ps"] <= now_ps:
        node.dispatch[0]["wake_ps"] = now_ps
        staged, gates = kernel_view(node.staged)[0], kernel_view(node.output.gates)
        dispatch_step(dispatches, 0, cus, warps, staged, gates, now_ps + 1)
