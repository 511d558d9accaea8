"""Which configurations a user asks for."""

from collections.abc import Sequence

from sim.collective.library import library_runs
from sim.collective.own_plan import OwnPlan
from sim.collective.topology import in_one_node, is_direct
from sim.presets import Preset
from sim.scenario.result import ALL_CONFIGURATIONS, CONFIGURATIONS, LIBRARY, SEQUENTIAL, SOFTWARE, SWITCH_CONFIGURATIONS
from sim.spec import Topology
from traces.errors import UserError

ALL = "all"
"""A name for all configurations that a machine has."""


def check_overlap(names: Sequence[str], overlap: bool) -> None:
    """Refuse configurations that are asked for beside --no-overlap.

    Raises:
        UserError: names the first.
    """
    others = [name for name in names if name != SEQUENTIAL]
    if others and not overlap:
        raise UserError(f"--configuration: found {others[0]} with --no-overlap, allowed is {SEQUENTIAL}")


def asked_configurations(
    names: Sequence[str], preset: Preset, own: OwnPlan | None = None, gpus: int = 0
) -> tuple[str, ...]:
    """The configurations of these names. ALL = all that the machine has; no name = those of the paper.

    Args:
        own: a user's plan; ALL leaves out what its links cannot do.
        gpus: their number; 0 = one node.
    """
    if ALL not in names:
        return tuple(names) or CONFIGURATIONS
    link = preset.machine.link
    adds = link.in_switch and link.topology == Topology.SWITCH and in_one_node(preset.machine, gpus)
    direct = len(own.distances(gpus)) == gpus - 1 if own else is_direct(link.topology)
    missing = {*([] if direct else SOFTWARE), *([] if adds else SWITCH_CONFIGURATIONS)}
    missing |= set() if library_runs(preset.machine, gpus) else {LIBRARY}
    return tuple(name for name in ALL_CONFIGURATIONS if name not in missing)
