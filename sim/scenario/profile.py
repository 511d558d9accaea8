"""A profile of a real program on a simulated machine: measured beside simulated times, and what overlap would buy.

Calls with the same work are one block of the schedule, which repeats. A GEMM and the exchange that reduces its output
are a block of two steps, so they are a pair (`sim.scenario.scheduled`). Measured times are those of the kernels, so
simulated ones are without launches and gaps. The measured time of an exchange includes waiting for the other GPUs.

What overlap buys is a ratio of simulated times, applied to measured ones: a pair that takes t today would take
t * (time in a configuration / time in today's configuration). All other kernels keep their measured times.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sim.presets import Preset
from sim.scenario.exchange import check_all_to_all, exchange_run
from sim.scenario.result import CONFIGURATIONS, LIBRARY, NVLS, SEQUENTIAL
from sim.scenario.scheduled import Scheduled, ScheduleResult, Work
from sim.scenario.step_kernels import kernels_on
from tracer.models.schedule import Block, Exchange, OperatorClass, Schedule, Step
from tracer.profile.gemms import kernel_fields
from tracer.profile.kineto import Call, Profile
from tracer.profile.works import GEMMS, in_switch, reduced_gemms, work_of
from traces.errors import UserError
from traces.units import PS_PER_NS

WORK, EXCHANGE = "work", "exchange"
"""Steps of a block: what it does, and the exchange that reduces the output of that, if it has one."""
UNKNOWN = "unknown operator"


def error_of(simulated_ns: float, measured_ns: float) -> float | None:
    """Relative error of a simulated time; None = the measured one is 0."""
    return simulated_ns / measured_ns - 1 if measured_ns else None


def excess_ns(times_ns: Iterable[tuple[float, float]]) -> float:
    """What the shortest kernel takes longer than it is simulated, 0 if it does not: its begin and end, which no
    simulated time has. times_ns: measured and simulated time of each kernel."""
    measured_ns, simulated_ns = min(times_ns, default=(0.0, 0.0))
    return max(0.0, measured_ns - simulated_ns)


class Compared(NamedTuple):
    """A step of a profile.

    Attributes:
        operator: its name in the profile.
        operator_class: for tables.
        work: a kernel's text, or an exchange.
        calls: number of calls.
        measured_ns, simulated_ns: mean time of a call.
        bound_by: what bounds the simulated one.
        time_error: relative error that the simulation states.
    """

    operator: str
    operator_class: OperatorClass
    work: Work
    calls: int
    measured_ns: float
    simulated_ns: float
    bound_by: str
    time_error: float

    @property
    def error(self) -> float | None:
        return error_of(self.simulated_ns, self.measured_ns)

    @property
    def is_kernel(self) -> bool:
        return isinstance(self.work, str)


class LeftOut(NamedTuple):
    """Calls of an operator that are not simulated, and why."""

    operator: str
    reason: str
    calls: int
    measured_ns: int


@dataclass(frozen=True)
class ProfileScenario(Scheduled):
    """A profile on a machine. Attributes: as of `Scheduled`."""

    preset: Preset
    profile: Profile
    accuracy: float = 0.0
    overlap: bool = True
    configurations: tuple[str, ...] = CONFIGURATIONS

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(tuple(Block(name, self._steps(calls), len(calls)) for name, calls in self.blocks.items()))

    def facts(self) -> dict[str, Any]:
        profile = self.profile
        return {
            "profile": profile.name,
            "gpu": profile.gpu,
            "preset": self.preset.name,
            "gpus": profile.gpus,
            "measured_ns": profile.time_ns,
            "span_ns": profile.span_ns,
            "busy_ns": profile.busy_ns,
        }

    @cached_property
    def _found(self) -> list[tuple[OperatorClass, Work] | None]:
        """Class and work of every call; None = not known."""
        return [work_of(call, self.profile) for call in self.profile.calls]

    @cached_property
    def _refused(self) -> dict[Work, str]:
        """Why the machine cannot run a work, "" = it can."""
        return {work: self._reason(work) for work in {one[1] for one in self._found if one}}

    @cached_property
    def _able(self) -> list[tuple[OperatorClass, Work] | None]:
        """Class and work of every call that is simulated; the library chooses the kernels of GEMMs."""
        return [None if one is None or self._refused[one[1]] else one for one in self._found]

    @cached_property
    def _reduced_calls(self) -> dict[int, int]:
        """Place of a GEMM -> place of the exchange that reduces its output."""
        works = [one[1] if one else None for one in self._able]
        return dict(reduced_gemms(works, self.profile.calls)) if self.overlap else {}

    @cached_property
    def _known(self) -> list[tuple[OperatorClass, Work] | None]:
        """Class and work of every call that is simulated. GEMMs that are not in pairs have the kernel that the profile
        names, if the machine can run it: all configurations of a pair have the library's choice."""
        able: dict[str, bool] = {}
        known = list(self._able)
        for place, one in enumerate(known):
            call = self.profile.calls[place]
            if one and call.name in GEMMS and place not in self._reduced_calls:
                text = f"{one[1]}{kernel_fields(call, self.profile.gpu)}"
                able.setdefault(text, not self._reason(text))
                known[place] = (one[0], text) if able[text] else one
        return known

    def _reason(self, work: Work) -> str:
        try:
            if isinstance(work, str):
                kernels_on(self.preset.machine, work)
            elif work.kind == "all_to_all":
                check_all_to_all(self.preset, work)
            else:
                exchange_run(self.preset, work)
        except UserError as reason:
            return str(reason)
        return ""

    @cached_property
    def blocks(self) -> dict[str, list[tuple[int, ...]]]:
        """Name of a block -> its calls: places in the profile, of a pair two."""
        pairs, works = self._reduced_calls, [one[1] if one else None for one in self._known]
        reduced = set(pairs.values())
        found: defaultdict[tuple, list[tuple[int, ...]]] = defaultdict(list)
        for place, work in enumerate(works):
            if work is not None and place not in reduced:
                places = (place, pairs[place]) if place in pairs else (place,)
                found[*(works[each] for each in places), *(self._in_switch(each) for each in places)].append(places)
        return {str(number): calls for number, calls in enumerate(found.values())}

    def _in_switch(self, place: int) -> bool:
        return in_switch(self.profile.calls[place])

    def _steps(self, calls: list[tuple[int, ...]]) -> tuple[Step, ...]:
        steps = []
        for place, name in zip(calls[0], (WORK, EXCHANGE), strict=False):
            known = self._known[place]
            assert known
            steps.append(Step(name, *known, reduces=WORK if name == EXCHANGE else ""))
        return tuple(steps)

    def calls_of(self, block: Block, step: Step) -> list[Call]:
        """The calls of the profile that are a step."""
        place = block.steps.index(step)
        return [self.profile.calls[places[place]] for places in self.blocks[block.name]]

    def left_out(self) -> list[LeftOut]:
        """What is not simulated, the longest first."""
        sums: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for call, found, known in zip(self.profile.calls, self._found, self._known, strict=True):
            if known is None:
                sums[call.name, self._refused[found[1]] if found else UNKNOWN].append(call.time_ns)
        rows = [LeftOut(name, reason, len(times), sum(times)) for (name, reason), times in sums.items()]
        return sorted(rows, key=lambda row: (-row.measured_ns, row.operator))

    def today(self, block: Block) -> str:
        """The configuration that a pair of the profile has today: in the switch if it does that, else by a library."""
        gemm, exchange = block.steps
        pair = self.pairs.get((str(gemm.work), exchange.work))
        switch = self._in_switch(self.blocks[block.name][0][1])
        wanted = (NVLS, LIBRARY) if switch else (LIBRARY,)
        usable = [name for name in wanted if name in self.shown and pair and name not in pair.refused]
        return usable[0] if usable else SEQUENTIAL


ProfileResult = ScheduleResult[ProfileScenario]


def compared(result: ProfileResult) -> list[Compared]:
    """Every step of the profile, the longest first."""
    rows, scenario = [], result.scenario
    for block, step in scenario.steps():
        calls, figures = scenario.calls_of(block, step), result.figures[scenario.key_of(block, step)]
        name = scenario.today(block) if len(block.steps) > 1 else SEQUENTIAL
        hidden_ps = figures.gaps_ps if step.name == WORK or name == LIBRARY else 0
        time_ps = result.times[name][block.name, step.name].alone_ps - hidden_ps
        rows.append(
            Compared(
                operator=calls[0].name,
                operator_class=step.operator_class,
                work=step.work,
                calls=len(calls),
                measured_ns=sum(call.time_ns for call in calls) / len(calls),
                simulated_ns=time_ps / PS_PER_NS,
                bound_by=figures.bound_by,
                time_error=figures.time_error,
            )
        )
    return sorted(rows, key=lambda row: -row.calls * row.measured_ns)


class Overlapped(NamedTuple):
    """A GEMM of a profile and the exchange that reduces its output.

    Attributes:
        calls: number of them.
        measured_ns: mean time of both.
        today: the configuration that they have.
        simulated_ns: configuration -> mean time of both.
    """

    gemm: str
    exchange: Exchange
    calls: int
    measured_ns: float
    today: str
    simulated_ns: dict[str, float]

    def saved_ns(self, name: str) -> float:
        """Measured time that a configuration would save in all calls."""
        return self.calls * self.measured_ns * (1 - self.simulated_ns[name] / self.simulated_ns[self.today])


def overlapped(result: ProfileResult) -> list[Overlapped]:
    """All pairs of the profile, the longest first."""
    rows, scenario = [], result.scenario
    for block in scenario.schedule.forward:
        if len(block.steps) > 1 and scenario.key_of(block, block.steps[1]) in scenario.pairs:
            gemm, exchange = block.steps
            calls = [call for step in block.steps for call in scenario.calls_of(block, step)]
            assert isinstance(exchange.work, Exchange)
            rows.append(
                Overlapped(
                    gemm=str(gemm.work),
                    exchange=exchange.work,
                    calls=block.repeats,
                    measured_ns=sum(call.time_ns for call in calls) / block.repeats,
                    today=scenario.today(block),
                    simulated_ns={
                        name: sum(times[block.name, step.name].alone_ps for step in block.steps) / PS_PER_NS
                        for name, times in result.times.items()
                    },
                )
            )
    return sorted(rows, key=lambda row: -row.calls * row.measured_ns)


def speedup(result: ProfileResult, name: str) -> float:
    """How many times as fast all kernels of the profile would be in a configuration."""
    measured_ns = result.scenario.profile.time_ns
    return measured_ns / (measured_ns - sum(row.saved_ns(name) for row in overlapped(result)))
