"""Plays the blocks of a schedule: when does each step begin and end, if each lane runs one step at a time?

A step begins when its lane is free and the steps that it waits for have ended. The first steps of a block wait for the
block before it, except for the steps which that block leaves behind. So the end of the last step is the length of the
critical path, not a sum. A kernel is slower while an exchange keeps CUs (`sim.scenario.beside`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tracer.models.schedule import Block, Lane, OperatorClass, Step


class StepTime(NamedTuple):
    """Time of a step in ps.

    Attributes:
        alone_ps: alone on its GPU.
        beside_ps: of a kernel, if exchanges that keep CUs run from its begin to its end; not less than alone_ps.
        keeps_cus: an exchange that keeps CUs.
    """

    alone_ps: int
    beside_ps: int = 0
    keeps_cus: bool = False


TimeOf = Callable[[Block, Step], StepTime]


@dataclass(frozen=True)
class Interval:
    """A step on the timeline."""

    block: str
    repeat: int
    step: Step
    begin_ps: int
    end_ps: int
    keeps_cus: bool = False

    @property
    def length_ps(self) -> int:
        return self.end_ps - self.begin_ps


@dataclass
class Timeline:
    """What has been played so far.

    Attributes:
        intervals: in the order of play.
        now_ps: when the next block can begin.
        free_ps: when each lane is free.
    """

    intervals: list[Interval] = field(default_factory=list)
    now_ps: int = 0
    free_ps: dict[Lane, int] = field(default_factory=dict)

    def play(self, blocks: Iterable[Block], time_of: TimeOf) -> None:
        """Play blocks one after the other, each as often as it repeats."""
        for block in blocks:
            for repeat in range(block.repeats):
                self._play_block(block, repeat, time_of)

    def join(self) -> None:
        """What comes next waits for all lanes."""
        self.now_ps = self.end_ps

    @property
    def end_ps(self) -> int:
        """End of the last step."""
        return max([self.now_ps, *self.free_ps.values()])

    def class_ps(self) -> dict[OperatorClass, int]:
        """Time of all steps by class."""
        sums = dict.fromkeys(OperatorClass, 0)
        for interval in self.intervals:
            sums[interval.step.operator_class] += interval.length_ps
        return sums

    def exposed_ps(self) -> int:
        """Time in which communication runs and no kernel does."""
        busy = sum(length for length in self._spans(lambda step: step.lane == Lane.COMPUTE))
        return sum(self._spans(lambda step: True)) - busy

    def _spans(self, chosen: Callable[[Step], bool]) -> Iterator[int]:
        """Lengths of the times in which at least one of the chosen steps runs."""
        reached = 0
        spans = sorted((i.begin_ps, i.end_ps) for i in self.intervals if chosen(i.step))
        for begin_ps, end_ps in spans:
            if end_ps > reached:
                yield end_ps - max(begin_ps, reached)
                reached = end_ps

    def _play_block(self, block: Block, repeat: int, time_of: TimeOf) -> None:
        ends: dict[str, int] = {}
        before_ps = self.now_ps
        for step in block.steps:
            ready_ps = max((ends[name] for name in step.after), default=before_ps)
            begin_ps = max(ready_ps, self.free_ps.get(step.lane, 0))
            time = time_of(block, step)
            before_ps = ends[step.name] = self._end_ps(begin_ps, time)
            self.free_ps[step.lane] = before_ps
            self.intervals.append(Interval(block.name, repeat, step, begin_ps, before_ps, time.keeps_cus))
        self.now_ps = max((end for name, end in ends.items() if name not in block.leaves), default=self.now_ps)

    def _end_ps(self, begin_ps: int, time: StepTime) -> int:
        """End of a step. While exchanges keep CUs, a kernel does in beside_ps what it does alone in alone_ps."""
        now_ps, left_ps = begin_ps, time.alone_ps
        if time.beside_ps <= time.alone_ps:
            return now_ps + left_ps
        kept = sorted((i.begin_ps, i.end_ps) for i in self.intervals if i.keeps_cus and i.end_ps > begin_ps)
        for kept_ps, free_ps in kept:
            if kept_ps >= now_ps + left_ps or free_ps <= now_ps:
                continue
            left_ps -= max(0, kept_ps - now_ps)
            now_ps = max(now_ps, kept_ps)
            done_ps = (free_ps - now_ps) * time.alone_ps // time.beside_ps
            if done_ps >= left_ps:
                return now_ps - -left_ps * time.beside_ps // time.alone_ps
            now_ps, left_ps = free_ps, left_ps - done_ps
        return now_ps + left_ps
