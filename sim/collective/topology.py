"""The GPU at the other end of each port. A new topology is a row here: the distances ahead of these GPUs.

A user's topology is in the file of the user's plan (`sim.collective.own_plan`).
"""

from typing import Protocol

from sim.spec import Topology
from traces.errors import UserError


class OwnTopology(Protocol):
    """A topology that a user's file describes."""

    @property
    def name(self) -> str: ...

    def distances(self, gpus: int) -> tuple[int, ...]:
        """Distance ahead (mod N) of the GPU at the other end of each port."""
        ...


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


def port_to(topology: AnyTopology, gpus: int, distance: int) -> int:
    """Port that leads to the GPU `distance` ahead.

    Raises:
        UserError: there is no such link.
    """
    distances = port_distances(topology, gpus)
    if distance % gpus not in distances:
        raise UserError(
            f"topology {topology.name.lower()} of {gpus} GPUs: no link to the GPU {distance} ahead; "
            f"allowed are {', '.join(map(str, sorted(set(distances))))}"
        )
    return distances.index(distance % gpus)
