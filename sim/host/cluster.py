"""N GPUs joined by links. Every GPU is simulated (explicit), or one GPU is simulated for all (symmetric).

Explicit: every GPU has its own records; they share only the wires. A packet is visible at the other end of a wire after
the link's latency at the earliest. So each GPU is run alone for that time, in any order, on any thread. What crossed a
wire meanwhile becomes known between these rounds (`publish`). How long they are changes no result.

Symmetric: all GPUs do the same at the same time. So the packets that arrive from one neighbour equal the packets that
leave to the other neighbour. They are for the tile at the same place of the neighbour's walk (`mirror`). This needs
chunks of equal shape (D29).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sim.collective.plans import Plan
from sim.collective.space import make_spaces, make_wavefronts
from sim.collective.topology import in_one_node, port_distances
from sim.host.gpu import Gpu, Progress
from sim.host.state import ClusterState
from sim.host.team import Team, threads, threads_of_each
from sim.host.watchdog import Watchdog
from sim.host.window import Launch
from sim.hw.dma import COMMAND, DESCRIPTOR
from sim.hw.link import publish
from sim.hw.link_record import WIRE, set_lanes, set_links
from sim.hw.mca import watch_first_stage
from sim.hw.request import LINE_BYTES, NEVER
from sim.hw.space import MIRROR
from sim.hw.switch import make_switch
from sim.hw.tracker import make_tracker
from sim.machine.build import Output
from sim.machine.deadlock import deadlock
from sim.machine.engine import Status, next_act_ps
from sim.machine.memory import check_memory
from sim.machine.rest import check_policy
from sim.spec import DmaPolicy, Machine
from traces.errors import UserError

ROUNDS_PER_LOOK = 1024
"""Rounds between two looks of the watchdog."""
STILL_ROUNDS = 1
"""After more consecutive rounds in which no GPU can act and nothing moves, the state is a deadlock."""


class Cluster:
    """Idle GPUs, connected for a plan.

    Attributes:
        gpus: one Gpu per simulated GPU.
        plans: their plans.
    """

    def __init__(self, machine: Machine, plans: Sequence[Plan], *, symmetric: bool = False, interval_ps: int = 0):
        """plans: of all GPUs in order; if symmetric, of the one GPU that represents all."""
        self.machine, self.plans, self.symmetric = machine, list(plans), symmetric
        count = plans[0].chunks.gpus
        if not symmetric and len(plans) != count:
            raise UserError(f"plans: found {len(plans)}, allowed is one for each of {count} GPUs")
        check_writes_through(machine)
        if symmetric and not in_one_node(machine, count):
            raise UserError(
                f"symmetric: nodes of {machine.network.node_gpus} GPUs have two kinds of links: run all GPUs"
            )
        self.distances = port_distances(plans[0].topology, count)
        ports = len(self.distances)
        loads = any(plan.loads for plan in plans)
        check_memory(machine, ports, len(plans), loads)
        self.wires = np.zeros(len(plans) * ports, WIRE)
        self._team = Team(min(threads(), len(plans)))
        each = threads_of_each(len(plans))
        joined: dict[str, Any] = {"ports": ports, "wires": self.wires, "threads": each, "loads": loads}
        self.gpus = [Gpu(machine, interval_ps, **joined) for _ in plans]
        for number, (gpu, plan) in enumerate(zip(self.gpus, plans, strict=True)):
            self._connect(gpu, number)
            gpu.node = gpu.node._replace(output=_output(machine, plan, self.distances, symmetric))

    def _connect(self, gpu: Gpu, number: int) -> None:
        ports, count = gpu.node.ports, self.plans[0].chunks.gpus
        numbers = {distance: p for p, distance in enumerate(self.distances)}
        for p, distance in enumerate(self.distances):
            behind = 0 if self.symmetric else (number - distance) % len(self.plans)
            ports[p]["out_wire"] = number * len(self.distances) + p
            ports[p]["in_wire"] = behind * len(self.distances) + p
            ports[p]["distance"], ports[p]["to_all"] = distance, distance == count
            ports[p]["back"] = numbers.get(count - distance, -1)
        if not in_one_node(self.machine, len(self.plans)):
            self._connect_nodes(ports, number)

    def _connect_nodes(self, ports: np.ndarray, number: int) -> None:
        """Set the kinds of the links of a GPU, to and from GPUs of its own and of other nodes (D45)."""
        far = np.column_stack([self.leaves_node(number, way) for way in (1, -1)])
        for port, (leaves, arrives) in zip(ports, far.tolist(), strict=True):
            set_links(port, self.machine, leaves, arrives)
        set_lanes(ports, self.machine, far)

    def leaves_node(self, number: int, way: int = 1) -> np.ndarray:
        """Do the outgoing (-1: the incoming) links of a GPU lead to (come from) a GPU of another node? bool[ports]."""
        per_node, count = self.machine.network.node_gpus, len(self.plans)
        other = (number + way * np.array(self.distances)) % count
        return other // per_node != number // per_node

    def watch_first_stage(self, workgroups: Sequence[int], start_ps: int) -> None:
        """MCA chooses its threshold when this many workgroups of queue 0 of each GPU have finished."""
        for gpu, number in zip(self.gpus, workgroups, strict=True):
            watch_first_stage(gpu.node.mca, number, start_ps)

    def run(
        self,
        launches: Sequence[Sequence[Launch]],
        progress: Progress | None = None,
        between_rounds: Callable[[], None] | None = None,
        state: ClusterState | None = None,
    ) -> None:
        """Run the kernels of every GPU until all GPUs and links are idle.

        Args:
            launches: kernels of each GPU.
            progress: called with the progress of the first GPU.
            between_rounds: called after every round; it may read `state()`.
            state: state of a cluster with the same plans and kernels; the run continues from it.

        Raises:
            DeadlockError: nothing can move but work is left.
        """
        self._horizon_ps, self._still = (state.horizon_ps, state.still) if state else (0, 0)
        for number, (gpu, own) in enumerate(zip(self.gpus, launches, strict=True)):
            if state:
                gpu.resume(own, state.gpus[number])
            else:
                gpu.launch(own)
        self._run_all(progress, between_rounds)

    def state(self) -> ClusterState:
        """The complete state of GPUs in the middle of their kernels. It is valid until they run again."""
        return ClusterState(self._horizon_ps, self._still, [gpu.state() for gpu in self.gpus])

    def _run_all(self, progress: Progress | None, between_rounds: Callable[[], None] | None) -> None:
        """Run in rounds of the link's latency, in whole clocks of the time windows."""
        step_ps = round_ps(self.machine, int(self.gpus[0].node.engine[0]["grid_ps"]))
        watchdog, rounds = Watchdog(), 0
        while True:
            rounds += 1
            self._horizon_ps += step_ps
            before, windows = self._moves(), self._windows()
            states = self._round(progress)
            if all(status == Status.IDLE for status in states) and self._at_rest():
                break
            still = self._moves() == before and all(status == Status.IDLE for status in states)
            self._still = self._still + 1 if still else 0
            if self._still > STILL_ROUNDS:
                break
            if rounds % ROUNDS_PER_LOOK == 0 and watchdog.starved([gpu.node for gpu in self.gpus]):
                raise next(gpu for gpu in self.gpus if not gpu.done).starvation("collective")
            if self._windows() == windows:
                self._skip_empty_rounds(step_ps)
            if between_rounds:
                between_rounds()
        for gpu in self.gpus:
            gpu.node.engine["horizon_ps"] = NEVER
            check_policy(gpu.node)
        if self._still > STILL_ROUNDS:
            stuck = next((k for k, gpu in enumerate(self.gpus) if not gpu.done), 0)
            gpu = self.gpus[stuck]
            raise deadlock(gpu.node, gpu.fifo_names, f"collective, GPU {self.plans[stuck].gpu}")
        for gpu, plan in zip(self.gpus, self.plans, strict=True):
            gpu.come_to_rest(f"collective, GPU {plan.gpu}")

    def _round(self, progress: Progress | None) -> list[Status]:
        """Run all GPUs to the horizon. Each thread takes the next GPU when it has done one."""
        states = [Status.HORIZON] * len(self.gpus)
        left = iter(enumerate(self.gpus))

        def work(_: int) -> None:
            for number, gpu in left:
                gpu.node.engine["horizon_ps"] = self._horizon_ps
                states[number] = gpu.advance(None if number else progress)

        self._team.run(work)
        publish(self.wires)
        return states

    def _skip_empty_rounds(self, step_ps: int) -> None:
        """Skip whole rounds in which no GPU can act: they change nothing."""
        next_ps = min(next_act_ps(gpu.node) for gpu in self.gpus)
        if next_ps < NEVER:
            self._horizon_ps += max(0, next_ps - self._horizon_ps) // step_ps * step_ps

    def _windows(self) -> int:
        """Number of time windows so far, on all GPUs together."""
        return sum(int(gpu.node.engine[0]["windows"]) for gpu in self.gpus)

    def _moves(self) -> int:
        """A count of moves: it grows with every move on any GPU."""
        total = int(self.wires["sent"].sum() + self.wires["taken"].sum())
        for gpu in self.gpus:
            noc = gpu.node.noc[0]
            total += int(noc["request_packets"] + noc["answer_packets"]) + int(gpu.node.dispatch["finished"].sum())
        return total

    def _at_rest(self) -> bool:
        """Have all launched kernels ended and all sent packets arrived, and does no packet wait to be sent?"""
        done = all(gpu.done and (gpu.node.fifos["head"] == gpu.node.fifos["tail"]).all() for gpu in self.gpus)
        return done and bool((self.wires["sent"] == self.wires["taken"]).all())


def check_writes_through(machine: Machine) -> None:
    """Refuse joined GPUs whose memory-side cache keeps what arrives.

    Raises:
        UserError: names the field.
    """
    if machine.msc.bytes and machine.msc.write_back:
        raise UserError("msc.write_back: found true, allowed is false for joined GPUs: memory counts what arrives")


def round_ps(machine: Machine, grid_ps: int) -> int:
    """Longest round: within it nothing that one GPU does reaches another. Rounds end where time windows may end."""
    return min(machine.link.latency_ps, machine.network.latency_ps) // grid_ps * grid_ps


def _output(machine: Machine, plan: Plan, distances: Sequence[int], symmetric: bool) -> Output:
    """The machine's records of a plan's buffers."""
    tiles, wavefronts = plan.tiles.copy(), make_wavefronts(plan.tiles)
    tiles["counting"] = (wavefronts["threshold_bytes"] > 0).sum(axis=1)
    tracker = make_tracker(machine.tracker, machine.dma.policy)
    tracker["tiles"], tracker["first_tile"] = len(tiles), plan.first_entry
    spaces = make_spaces(plan.tiles, plan.buffers, plan.chunks.gpus)
    mirrors = np.zeros((0, 0), MIRROR)
    if symmetric:
        spaces["mirrored"] = 1
        mirrors = make_mirrors(plan, distances)
    by_chunk = machine.dma.policy == DmaPolicy.CHUNK
    launch_ps = 0 if by_chunk else machine.dispatch.launch_ps  # software's commands need no kernel
    released = _released(plan, wavefronts, launch_ps, by_chunk)
    tracker["released"] = (released[:, 0] >= 0).sum()
    switch, sums = make_switch(plan.chunks.gpus, plan.chunks.gpus in distances)
    sent_on = (plan.tiles["sends"] > 0) & (plan.tiles["threshold_bytes"] > 0)
    return Output(
        space=spaces,
        tiles=tiles,
        sends=plan.sends,
        wavefronts=wavefronts,
        tracker=tracker,
        gates=plan.gates.copy(),
        mirrors=mirrors,
        released=released,
        chunk_left=np.bincount(plan.tiles["chunk"][sent_on], minlength=plan.chunks.gpus).astype(np.int64),
        switch=switch,
        sums=sums,
    )


def _released(plan: Plan, wavefronts: np.ndarray, start_ps: int, by_chunk: bool) -> np.ndarray:
    """The ready list with room for all descriptors. Tiles that expect nothing are in it: they are ready at start_ps.

    All of them go to their first GPU, then all to their second one, and so on. by_chunk: that is a command for each.
    """
    tiles = plan.tiles
    found = np.full((max(1, int(tiles["sends"].sum()) * max(1, wavefronts.shape[1])), DESCRIPTOR), -1, np.int64)
    at_once = np.flatnonzero((tiles["sends"] > 0) & (tiles["threshold_bytes"] == 0))
    turns = np.arange(int(tiles["sends"].max(initial=0)))
    turn, tags = (grid.ravel() for grid in np.meshgrid(turns, at_once, indexing="ij"))
    kept = turn < tiles["sends"][tags]
    found[: kept.sum(), 0], found[: kept.sum(), 2], found[: kept.sum(), 3] = tags[kept], start_ps, turn[kept]
    found[: kept.sum(), COMMAND] = 1
    if by_chunk:
        first, count = np.unique(turn[kept], return_index=True, return_counts=True)[1:]
        found[first, COMMAND] = count
    return found


def make_mirrors(plan: Plan, distances: Sequence[int]) -> np.ndarray:
    """MIRROR [ports, tags] for the symmetric machine.

    Raises:
        UserError: chunks have unequal shapes; only explicit GPUs can run them.
    """
    chunks = plan.chunks
    mirrors = np.zeros((len(distances), len(plan.tiles)), MIRROR)
    if len(set(np.diff(chunks.edges))) > 1:
        raise UserError(f"symmetric: chunks of {np.diff(chunks.edges).tolist()} tiles are not equal; run all GPUs")
    for p, distance in enumerate(distances):
        seen = _tags_ahead(plan, distance)
        for name in ("runs", "run_bytes", "pitch_bytes"):
            if (plan.tiles[name][seen] != plan.tiles[name]).any():
                raise UserError("symmetric: tiles in the same place of two chunks differ in shape; run all GPUs")
        mirrors[p]["tag"] = seen
        mirrors[p]["shift_bytes"] = plan.tiles["address"][seen] - plan.tiles["address"]
    if (mirrors["shift_bytes"] % LINE_BYTES != 0).any():
        raise UserError("symmetric: tiles in the same place of two chunks begin at different bytes of a line")
    return mirrors


def _tags_ahead(plan: Plan, distance: int) -> np.ndarray:
    """For each tag, the tag at the same place of the walk of the GPU `distance` ahead.

    The first buffer is cut by the plan's chunks, once for each phase. Any other buffer has equal parts, one per GPU.

    Raises:
        UserError: a buffer has no equal parts.
    """
    found: list[np.ndarray] = []
    first = 0
    for buffer in plan.buffers:
        count = len(buffer.tiles)
        period = plan.chunks.tiles if not found else count
        if period % plan.chunks.gpus:
            raise UserError(f"symmetric: {count} tiles of {buffer.name} have no equal parts; run all GPUs")
        places = np.arange(count)
        ahead = (places + distance * (period // plan.chunks.gpus)) % period
        found.append(first + places // period * period + ahead)
        first += count
    return np.concatenate(found)


def walk_alike(plans: Sequence[Plan]) -> bool:
    """Does every GPU treat its local chunks as GPU 0 does? Chunks have equal shapes."""

    def seen(plan: Plan) -> np.ndarray:
        """The plan's fields of the tiles, in the order of the GPU's walk."""
        walk = _tags_ahead(plan, -plan.gpu)
        place = np.argsort(walk)
        names = ("routed", "op", "stay", "stores", "sends", "own", "threshold_bytes", "chunk")
        said = [plan.tiles[name] for name in names]
        said.append(np.where(plan.tiles["threshold_bytes"] > 0, plan.tiles["gate"], -1))
        for count, first in (("stores", "first_store"), ("sends", "first_send")):
            for k in range(int(plans[0].tiles[count].max(initial=0))):
                there = plan.tiles[count] > k
                send = np.resize(plan.sends, max(1, len(plan.sends)))[np.where(there, plan.tiles[first] + k, 0)]
                slot = send["shift_bytes"] - (plan.tiles["address"][send["tag"]] - plan.tiles["address"])
                said += [np.where(there, what, -1) for what in (send["port"], send["op"], place[send["tag"]], slot)]
        return np.array(said)[:, walk]

    return all(np.array_equal(seen(plan), seen(plans[0])) for plan in plans)


def can_be_symmetric(plan: Plan, distances: Sequence[int]) -> bool:
    """Have all chunks, and the parts of all buffers, equal shapes?"""
    try:
        make_mirrors(plan, distances)
    except UserError:
        return False
    return True
