"""The GPU at the other end of each port. A new topology is a row here: the distances ahead of these GPUs.

A user's topology is in the file of the user's plan (`sim.collective.own_plan`).
"""

from typing import Protocol

from sim.hw.space import MAX_GPUS
from sim.spec import Machine, Topology
from traces.errors import UserError


class OwnTopology(Protocol):
    """A topology that a user's file describes."""

    @property
    def name(self) -> str: ...

    def distances(self, gpus: int) -> tuple[int, ...]:
        """Distance ahead (mod N) of the GPU at the other end of each port."""
        ...


class AddingSwitch:
    """A switch that adds and copies (`link.in_switch`): a link to each other GPU, and one to the switch itself.

    The GPU at the end of the last link is N ahead: the GPU itself. What it sends there to be added comes back in the
    sum. What it stores there comes to all GPUs.
    """

    name = "switch"

    def distances(self, gpus: int) -> tuple[int, ...]:
        return tuple(range(1, gpus + 1))


AnyTopology = Topology | OwnTopology


def port_distances(topology: AnyTopology, gpus: int) -> tuple[int, ...]:
    """Distance ahead (mod N) of the GPU at the other end of each port."""
    if not isinstance(topology, Topology):
        return topology.distances(gpus)
    if topology == Topology.RING:
        return (1, gpus - 1)
    return tuple(range(1, gpus))


def is_direct(topology: AnyTopology) -> bool:
    """Do collectives send directly to the owner? Otherwise they pass chunks along the ring of distance 1."""
    return isinstance(topology, Topology) and topology != Topology.RING


def in_one_node(machine: Machine, gpus: int) -> bool:
    """Are all GPUs in one node? Then all their links are of one kind."""
    return machine.network.node_gpus == 0 or machine.network.node_gpus >= gpus


def adding_switch(machine: Machine, gpus: int) -> AddingSwitch:
    """The switch of a machine that adds and copies.

    Raises:
        UserError: the machine has none for so many GPUs, or it has fewer ports.
    """
    link = machine.link
    if not in_one_node(machine, gpus):
        raise UserError(
            f"network.node_gpus: found {machine.network.node_gpus} for {gpus} GPUs, allowed for NVLS is one node "
            f"(0, or {gpus} or more)"
        )
    if link.topology != Topology.SWITCH or not link.in_switch:
        raise UserError(
            f"link.in_switch: found {str(link.in_switch).lower()} with link.topology = {link.topology.name.lower()}; "
            "allowed for NVLS is true with switch: the switch adds and copies (h100_sxm, h200, b200, b300)"
        )
    if gpus >= MAX_GPUS:
        raise UserError(f"gpus: found {gpus}, allowed for NVLS are 2 to {MAX_GPUS - 1}")
    return AddingSwitch()


def port_to(topology: AnyTopology, gpus: int, distance: int) -> int:
    """Port that leads to the GPU `distance` ahead.

    Raises:
        UserError: there is no such link.
    """
    distances = [found % gpus for found in port_distances(topology, gpus)]
    if distance % gpus not in distances:
        raise UserError(
            f"topology {topology.name.lower()} of {gpus} GPUs: no link to the GPU {distance} ahead; "
            f"allowed are {', '.join(map(str, sorted(set(distances))))}"
        )
    return distances.index(distance % gpus)
