"""The analysis: evidence from counters, claims that are checked by simulating again, and assumed values that matter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.collective.topology import in_one_node
from sim.counters import flushed_columns
from sim.explain.changes import (
    FASTER,
    HALF,
    LATENCIES,
    ON_MANY_GPUS,
    ON_NODES,
    ON_ONE_GPU,
    QUICKER,
    UNCOUNTED,
    Change,
    assumed_changes,
    changed,
)
from sim.explain.repeat import Answer, Repeat
from sim.explain.stalls import Stalled, stalled
from sim.results import RunResult
from sim.run.shares import bounded_by, kind_of, shares
from tracer.elf.line_table import LineTable
from traces.errors import UserError

SURE, PARTLY = 0.6, 0.25
"""Share of the largest possible saving from which a bound counts as certain, or as a part of the truth (assumed)."""
NOTHING = 0.005
"""A change of the time below this share is none."""
WAITING = {
    "warps, for data": "cu.slot_stall_ps",
    "warps, at barriers": "cu.barrier_stall_ps",
    "load/store units, for room in L1 or the NoC": "lsu.blocked_ps",
    "L2 banks, for room or a miss entry": "l2.blocked_ps",
    "requests, for a place in a DRAM queue": "hbm.wait_ps",
    "entries in DRAM queues": "hbm.occupancy",
    "packets from links, for room in memory": "link.blocked_ps",
}
"""What waits -> counter: the sum of the waiting times."""
Progress = Callable[[int, int], None]
"""Called with (runs done, runs to do)."""


@dataclass(frozen=True)
class Check:
    """A claim and its test by simulation.

    Attributes:
        change: what was changed. values: field -> (old, new).
        answer: None = it cannot run, see `reason`.
        saves: share of the time that the change saves; negative = it takes longer.
    """

    change: Change
    values: dict[str, tuple[Any, Any]]
    answer: Answer | None
    saves: float = 0.0
    reason: str = ""

    @property
    def matters(self) -> bool:
        return self.answer is not None and abs(self.saves) >= NOTHING


@dataclass
class Explanation:
    """What is known of a result.

    Attributes:
        bound: what bounds it, from counters. sure: verdict on it, from the checks.
        shares: unit -> share of its peak.
        base: time and speed-up of the unchanged machine.
        helps: checks of faster units, the largest saving first. hangs_on: checks of assumed values.
        waiting: (what waits, mean number at any time), the largest first.
        stalled: where warps wait, the largest share first; empty without a time series.
    """

    bound: str
    shares: dict[str, float]
    base: Answer
    sure: str = ""
    helps: list[Check] = field(default_factory=list)
    hangs_on: list[Check] = field(default_factory=list)
    waiting: list[tuple[str, float]] = field(default_factory=list)
    stalled: list[Stalled] = field(default_factory=list)


def explain(
    run: RunResult,
    repeat: Repeat,
    helps: int,
    assumed: int,
    gpus: int,
    progress: Progress,
    tables: Mapping[int, LineTable] | None = None,
) -> Explanation:
    """Explain a result.

    Args:
        run: whose counters are the evidence: the run, or the fused run of a configuration.
        repeat: simulates on a machine.
        helps, assumed: largest number of changes to try, and of assumed values.
        gpus: number of GPUs of the scenario; 1 = a run on one GPU.
        progress: called before and after every simulation.
        tables: line tables of kernels by number, for the places of stalls.
    """
    tried = _candidates(run, gpus)[:helps]
    doubted = list(assumed_changes(run.preset, gpus))[:assumed]
    count = 1 + len(tried) + len(doubted)
    progress(0, count)
    base = repeat(run.preset)
    found = Explanation(bounded_by(run), shares(run), base, waiting=waiting(run), stalled=stalled(run, tables or {}))
    for number, change in enumerate([*tried, *doubted]):
        progress(1 + number, count)
        (found.helps if number < len(tried) else found.hangs_on).append(_check(run, change, repeat, base))
    progress(count, count)
    found.sure = _verdict(found)
    found.helps.sort(key=lambda check: -check.saves)
    found.hangs_on.sort(key=lambda check: -abs(check.saves))
    return found


def waiting(run: RunResult) -> list[tuple[str, float]]:
    """(what waits, mean number of them at any time), the largest first: sum of waiting times / time (Little's law)."""
    means = [(what, _without_flush(run.totals, name) / max(1, run.time_ps)) for what, name in WAITING.items()]
    return sorted(((what, mean) for what, mean in means if mean > 0), key=lambda pair: -pair[1])


def _without_flush(total: Mapping[str, int], name: str) -> float:
    """A waiting time, without the part of DRAM writes that flushes of L2 have after kernels: their share of columns."""
    writes = total.get("hbm.write_columns.compute_write", 0)
    late = min(flushed_columns(total), writes) / writes if writes else 0.0
    return total.get(name, 0) - late * total.get(f"{name}.compute_write", 0)


def _candidates(run: RunResult, gpus: int) -> list[Change]:
    """Changes to try: what tests the bound, the two busiest units, used ones without a share, then the others."""
    found, bound = shares(run), kind_of(bounded_by(run))
    units = sorted((change for change in FASTER if change.unit in found), key=lambda change: -found[change.unit])
    joined = ON_MANY_GPUS if in_one_node(run.preset.machine, gpus) else ON_NODES
    others = [*_uncounted(run), *(joined if gpus > 1 else ON_ONE_GPU)]
    first = [*(change for change in (LATENCIES, QUICKER) if change.unit == bound), *units[:2]]
    return [*first, *(change for change in [*others, *units[2:]] if change not in first)]


def _uncounted(run: RunResult) -> list[Change]:
    """Of units that the run uses and whose limit the machine has."""
    values = run.preset.values()
    used = [change for names, change in UNCOUNTED.items() if any(run.totals.get(name) for name in names)]
    return [change for change in used if all(values[field] for field in change.factors)]


def _check(run: RunResult, change: Change, repeat: Repeat, base: Answer) -> Check:
    try:
        preset, values = changed(run.preset, change.factors)
        answer = repeat(preset)
    except UserError as reason:
        return Check(change, {}, None, reason=str(reason))
    return Check(change, values, answer, 1 - answer.time_ps / base.time_ps)


def _verdict(found: Explanation) -> str:
    """How sure the bound is: what its change saves, against half of the time, and against what other units save."""
    bound, tried = kind_of(found.bound), [check for check in found.helps if check.answer and check.change.unit]
    own = max((check for check in tried if check.change.unit == bound), key=lambda check: check.saves, default=None)
    if own is None:
        return "not checked"
    text = f"{own.change.title} saves {own.saves:.1%}"
    other = max((check for check in tried if check.change.unit != bound), key=lambda check: check.saves, default=own)
    if other.saves > own.saves + NOTHING:
        return f"not confirmed: {text}, but {other.change.title} {other.saves:.1%}"
    share = own.saves / HALF
    word = "sure" if share >= SURE else "partly: other units take over" if share >= PARTLY else "not confirmed"
    return f"{word}: {text}; if nothing else counted it would save {HALF:.0%}"
