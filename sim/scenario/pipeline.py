"""The time of a pipeline: each stage runs its passes in the order of the software, each pass waits for its input.

One forward and one backward pass in turn (1F1B), with one or several parts of the model on each stage (interleaved), as
in arXiv 2104.04473, section 2.2. The passes before the first backward pass are those of Megatron-LM of 2025,
core/pipeline_parallel/schedules.py. A send begins when its pass has ended and no earlier send in its direction runs.
The stage goes on meanwhile. With one part on each stage, a stage has no other pass to run while it waits, so most sends
take time. Sends of Megatron-LM also block the sender, which can take longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

ROUNDS = 4
"""The times of a pipeline repeat after so many micro-batches for each stage (a test compares with pipelines that are
played whole). Two to three times as many are played, and the others take as long as the last ones."""

Pass = tuple[bool, int, int]
"""(backward, micro-batch, part of the model on the stage)."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline whose stages do the same; the last part of the last stage can do more. Pairs: (forward, backward).

    Attributes:
        stages: number of stages.
        parts: of the model on each stage.
        micro_batches: with several parts a multiple of `stages`.
        pass_ps: of one micro-batch and part. Without training nothing goes backward.
        more_ps: in the last part of the last stage.
        send_ps: to the stage after, and to the stage before.
        train: has backward passes.
    """

    stages: int
    parts: int
    micro_batches: int
    pass_ps: tuple[int, int]
    more_ps: tuple[int, int] = (0, 0)
    send_ps: tuple[int, int] = (0, 0)
    train: bool = True

    def end_ps(self) -> int:
        """End of the last pass."""
        period = ROUNDS * self.stages
        periods = max(0, self.micro_batches // period - 2)
        short = replace(self, micro_batches=self.micro_batches - periods * period)
        end_ps = short._play()
        if not periods:
            return end_ps
        return end_ps + periods * (end_ps - replace(short, micro_batches=short.micro_batches - period)._play())

    def _play(self) -> int:
        """`end_ps` with all micro-batches played."""
        last = self.stages * self.parts - 1
        coming = [list(self.passes(stage))[::-1] for stage in range(self.stages)]
        now_ps = [0] * self.stages
        link_ps = [[0, 0] for _ in range(self.stages)]
        arrivals: dict[Pass, int] = {(False, k, 0): 0 for k in range(self.micro_batches)}  # part: of the whole model
        while any(coming):
            for stage in range(self.stages):
                while coming[stage]:
                    backward, micro_batch, part = coming[stage][-1]
                    place = part * self.stages + stage
                    arrival_ps = arrivals.pop((backward, micro_batch, place), None)
                    if arrival_ps is None:
                        break
                    coming[stage].pop()
                    work_ps = self.pass_ps[backward] + (self.more_ps[backward] if place == last else 0)
                    now_ps[stage] = end_ps = max(now_ps[stage], arrival_ps) + work_ps
                    if place == last and not backward:
                        arrivals[True, micro_batch, place] = end_ps
                    elif place > 0 or not backward:
                        link_ps[stage][backward] = max(link_ps[stage][backward], end_ps) + self.send_ps[backward]
                        arrivals[backward, micro_batch, place + (-1 if backward else 1)] = link_ps[stage][backward]
        return max(now_ps)

    def passes(self, stage: int) -> Iterator[Pass]:
        """The passes of a stage in their order."""
        count = self.micro_batches * self.parts
        first = self.stages - 1 - stage
        if self.parts > 1:
            first = 2 * first + (self.parts - 1) * self.stages
        first = min(first, count) if self.train else count
        for k in range(count):
            yield self._pass(k, backward=False)
            if k >= first and self.train:
                yield self._pass(k - first, backward=True)
        if self.train:
            for k in range(count - first, count):
                yield self._pass(k, backward=True)

    def _pass(self, k: int, backward: bool) -> Pass:
        """The k-th pass forward or backward: `stages` micro-batches go through a part, then through the next one."""
        if self.parts == 1:
            return backward, k, 0
        turn, k = divmod(k, self.stages * self.parts)
        part, k = divmod(k, self.stages)
        return backward, turn * self.stages + k, self.parts - 1 - part if backward else part
