"""Experiment: many machines within stated bounds, and for each the aggregates that the paper published."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from sim.occupancy import occupancy_of
from sim.run.run import Run
from sim.scenario.result import IDEAL, T3, T3_MCA
from traces.errors import UserError
from validation.claims.claim import Claim, load_claims
from validation.experiments.experiment import Experiment, Results
from validation.experiments.space import Factor, Level, Target, check_factor, load_space
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import Workbench, scenario_names

BASE, BRIDGE = "base", "bridge"
"""Names of the base in the search's sub-layers, and in those of `Search.bridge`."""
RS_OF_LINK, GEMM_OF_PEAK = "mean/rs_of_link", "least/gemm_of_peak"
"""Answers that are shown beside the targets: time of the reduce-scatter over that of its bytes on the link, and the
smallest share of the matrix peak that a GEMM alone reaches."""


@dataclass(frozen=True)
class Aim:
    """A target with its claim. tolerance: in the unit of the claim."""

    claim: Claim
    tolerance: float
    fit: bool

    @property
    def answer(self) -> str:
        return self.claim.answer

    def error(self, value: float) -> float:
        """Distance from what is published, in tolerances; 0 where a limit on one side is kept."""
        return self.claim.difference(value) / self.tolerance


@dataclass(frozen=True)
class Candidate:
    """A machine of the search.

    Attributes:
        name: that of the machine; with the level of `Search.across`, if there is one.
        machine: BASE, BRIDGE, its number in the design, or its name in the space.
        levels: factor -> level.
        sublayers: what is simulated on it.
        refused: why it cannot be simulated; "" = it can.
    """

    name: str
    machine: str
    levels: Mapping[str, Level]
    sublayers: Sublayers
    refused: str


class Search(Experiment, tag="search", frozen=True, kw_only=True):
    """Sub-layers on many machines. The answers are those of the machines whose runs all have results.

    Attributes:
        space: name of a file in `spaces`.
        machines: number of machines of the design, from number `first` on.
        fixed: factor -> level in words that all these machines have; not those of `chosen`.
        chosen: machines to take instead: numbers of the design, or names in the space.
        across: every machine with each level of this factor, e.g. seeds of jitter or arbiters; None = as it is.
        only_mca: `across` changes the run of T3-MCA alone. The other configurations are those of the machine as it is.
        scenarios: `model/layer/tpN`, or `paper`.
        targets: what the machines should meet, in place of the targets of the space; empty = those of the space.
        bridge: scenarios in which the base is simulated too, with all tokens. What the base's aggregates there differ
            from those in `scenarios` is added to the aggregates of every machine. Empty = nothing is added.
        bench: the base.
    """

    partial: ClassVar[bool] = True

    space: str
    machines: int = 0
    first: int = 0
    fixed: Mapping[str, str] = {}
    chosen: tuple[int | str, ...] = ()
    across: Factor | None = None
    only_mca: bool = False
    scenarios: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    bridge: tuple[str, ...] = ()
    bench: Workbench = Workbench()

    def aims(self) -> list[Aim]:
        """The targets with their claims."""
        return aims_of(self.targets or load_space(self.space).target)

    def candidates(self) -> Iterator[Candidate]:
        """The base, the bridge, then the machines in the order of the design."""
        space = load_space(self.space)
        yield self._candidate(BASE, BASE, space.base(), self.scenarios, self.bench)
        if self.bridge:
            whole = msgspec.structs.replace(self.bench, tokens=None)
            yield self._candidate(BRIDGE, BRIDGE, space.base(), self.bridge, whole)
        fixed = space.levels(self.fixed, f"{self.title}, fixed")
        for machine in self.chosen or range(self.first, self.first + self.machines):
            levels = space.machine(machine)
            yield from self._variants(f"{machine}", levels if self.chosen else levels | fixed)

    def _variants(self, machine: str, levels: Mapping[str, Level]) -> Iterator[Candidate]:
        """One machine with each level of `across`."""
        if self.across is None:
            yield self._candidate(machine, machine, levels, self.scenarios, self.bench)
            return
        check_factor(self.across, self.title)
        for level in self.across.level:
            varied = {**levels, self.across.name: level}
            yield self._candidate(f"{machine}, {level.value}", machine, varied, self.scenarios, self.bench)

    def _candidate(
        self, name: str, machine: str, levels: Mapping[str, Level], scenarios: tuple[str, ...], bench: Workbench
    ) -> Candidate:
        varied = _with_levels(bench, levels.values())
        if self.only_mca:
            plain = [level for factor, level in levels.items() if self.across is None or factor != self.across.name]
            sublayers = Sublayers(title=name, scenarios=scenarios, bench=_with_levels(bench, plain), mca=varied)
        else:
            sublayers = Sublayers(title=name, scenarios=scenarios, bench=varied)
        return Candidate(name, machine, levels, sublayers, _refusal(sublayers))

    def runs(self) -> list[Run]:
        """The runs of one machine after those of another."""
        return [run for each in self.candidates() if not each.refused for run in each.sublayers.runs()]

    def answers(self, results: Results) -> dict[str, float]:
        """`<machine>/<answer of a target>`, `<machine>/<sub-layer>/<configuration>/speedup` or `/time_us`.

        A target of other sub-layers has no answer, for example one of TP 16 where all scenarios have TP 8.
        """
        answers: dict[str, float] = {}
        wanted = [*(aim.answer for aim in self.aims()), RS_OF_LINK, GEMM_OF_PEAK]
        for each in self.candidates():
            if each.refused or not all(run.key in results for run in each.sublayers.runs()):
                continue
            found = each.sublayers.answers(results)
            names = scenario_names(each.sublayers.scenarios)
            shown = [f"{name}/{configuration}/speedup" for name in names for configuration in (T3, T3_MCA)]
            shown += [f"{name}/{configuration}/time_us" for name in names for configuration in (IDEAL, T3)]
            answers |= {f"{each.name}/{key}": found[key] for key in (*wanted, *shown) if key in found}
        return answers


def _with_levels(bench: Workbench, levels: Iterable[Level]) -> Workbench:
    """The base with the values that the levels set."""
    kernel, overrides = dict(bench.kernel), list(bench.overrides)
    for level in levels:
        kernel |= level.kernel
        overrides += level.overrides
    return msgspec.structs.replace(bench, overrides=tuple(overrides), kernel=kernel)


def aims_of(targets: Iterable[Target]) -> list[Aim]:
    """Targets with their claims.

    Raises:
        UserError: no such claim, or no tolerance above 0.
    """
    claims = {claim.id: claim for claim in load_claims()}
    aims = []
    for target in targets:
        claim = claims.get(target.claim)
        if claim is None:
            raise UserError(f"target {target.claim!r}: no claim has this id")
        tolerance = claim.tolerance if target.tolerance is None else target.tolerance
        if not tolerance:
            raise UserError(f"target {target.claim}: found tolerance {tolerance}, allowed is more than 0")
        aims.append(Aim(claim, tolerance, target.fit))
    return aims


def _refusal(sublayers: Sublayers) -> str:
    """Why these sub-layers cannot be simulated; "" = they can. The rules of the machine and of the kernel."""
    try:
        for bench in filter(None, (sublayers.bench, sublayers.mca)):
            for scenario in bench.scenarios(sublayers.scenarios).values():
                occupancy_of(scenario.preset.machine.cu, scenario.source().info)
    except UserError as problem:
        return str(problem)
    return ""
