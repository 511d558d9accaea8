"""GPUs that are put back into the state they had in the middle of a collective end in the same records, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from sim.host.cluster import Cluster
from sim.host.state import ClusterState, State, named_arrays
from tests.support.rings import ring
from tests.support.t3_cases import FOUR_WARPS, NARROW, T3Case, clusters
from tracer.gemm.source import Epilogue


class Stop(Exception):
    """Ends a run."""


def prepared(case, part):
    """(function that makes the cluster of a job, its launches). part: of a T3Case; None = the job is a run."""
    found = []

    def keep(cluster, launches):
        found.append((cluster, launches))
        raise Stop

    with clusters(keep), pytest.raises(Stop):
        case._run(part) if part else case.execute()
    ((seen, launches),) = found
    stage = seen.gpus[0].node.mca[0]

    def fresh():
        cluster = Cluster(seen.machine, seen.plans, symmetric=seen.symmetric)
        stages = [int(gpu.node.mca["stage_workgroups"][0]) for gpu in seen.gpus]
        cluster.watch_first_stage(stages, int(stage["stage_from_ps"]))
        return cluster

    return fresh, launches


def copied(state):
    """As a file would keep it."""
    copies = [State(gpu.facts, {name: array.copy() for name, array in gpu.arrays.items()}) for gpu in state.gpus]
    return ClusterState(state.horizon_ps, state.still, copies)


def records(cluster):
    return [{name: array.tobytes() for name, array in named_arrays(gpu.node).items()} for gpu in cluster.gpus]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "case"),
    [
        ("t3", T3Case(128, 128, 64, gpus=4)),
        ("t3", T3Case(128, 128, 64, gpus=4, explicit=False)),
        ("t3", T3Case(192, 192, 64, 3, replace(FOUR_WARPS, epilogue=Epilogue.DETACHED), settings=NARROW)),
        ("all_reduce", T3Case(96, 96, 32, gpus=3, settings=NARROW)),
        (None, ring("all_reduce", 3)),
    ],
)
def test_from_the_middle_to_the_same_end(part, case):
    fresh, launches = prepared(case, part)
    whole, states, rounds = fresh(), [], []

    def note_state():
        rounds.append(len(rounds))
        if rounds[-1] in (0, 2, 4, 30):
            states.append(copied(whole.state()))

    whole.run(launches, between_rounds=note_state)
    assert len(states) >= 3
    for state in states:
        other = fresh()
        other.run(launches, state=state)
        for one, two in zip(records(whole), records(other), strict=True):
            assert [name for name in one if one[name] != two[name]] == []
        assert all(gpu.node.wires is other.gpus[0].node.wires for gpu in other.gpus)
        assert np.array_equal(other.wires["sent"], whole.wires["sent"])
