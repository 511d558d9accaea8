"""Which GPU a port leads to. A new topology is a row here: the distances ahead that its ports reach."""

from sim.spec import Topology
from traces.errors import UserError


def port_distances(topology: Topology, gpus: int) -> tuple[int, ...]:
    """How far ahead (mod N) the GPU at the other end of each port is."""
    if topology == Topology.RING:
        return (1, gpus - 1)
    return tuple(range(1, gpus))


def port_to(topology: Topology, gpus: int, distance: int) -> int:
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
