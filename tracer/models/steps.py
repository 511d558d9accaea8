"""A growing list of the steps of a block: kernels, and the exchanges of tensor parallelism around them."""

from dataclasses import dataclass, field, replace

from tracer.models.deployment import Deployment
from tracer.models.schedule import Exchange, Lane, OperatorClass, Step
from tracer.models.shape import ModelShape
from tracer.models.texts import KernelTexts


@dataclass
class Steps:
    """A growing list of the steps of a block.

    Attributes:
        model, how: the model and how it runs.
        prefix: before each name (a pass that is computed again).
        steps: so far.
    """

    model: ModelShape
    how: Deployment
    prefix: str = ""
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self):
        self.texts = KernelTexts(self.model, self.how)

    def add(self, name: str, kind: OperatorClass, *works: str) -> None:
        """One kernel, or several as name_0, name_1, ...; no work adds nothing."""
        for number, work in enumerate(works):
            own = name if len(works) == 1 else f"{name}_{number}"
            self.steps.append(Step(self.prefix + own, kind, work))

    def matrix(self, name: str, m: int, n: int, k: int, *after: str) -> str:
        """A GEMM. after: the steps that it waits for, if this is not only the step before it."""
        step = Step(self.prefix + name, OperatorClass.MATRIX, self.texts.matrix(m, n, k), after)
        self.steps.append(step)
        return step.name

    def weight(self, name: str, m: int, n: int, k: int, *after: str) -> None:
        """The GEMM of a weight's gradient."""
        self.steps.append(Step(self.prefix + name, OperatorClass.MATRIX, self.texts.weight(m, n, k), after))

    def exchange(self, name: str, kind: str, data_bytes: int, gpus: int, stride: int = 1, **options) -> None:
        """An exchange; a group of one GPU needs none."""
        if gpus > 1:
            work = Exchange(kind, data_bytes, gpus, stride)
            step = Step(self.prefix + name, OperatorClass.COMMUNICATION, work, lane=Lane.TENSOR)
            self.steps.append(replace(step, **options))

    @property
    def row_bytes(self) -> int:
        """Size of the activations of a micro-batch, all tokens times the hidden size."""
        return self.how.tokens * self.model.hidden * self.how.dtype.bytes

    def reduced(self, name: str, gemm: str, rows: int = 0, after: str = "") -> None:
        """The exchange behind a GEMM whose output is a partial sum.

        rows: of the output; 0 = one for each token. after: the step that adds the output to others, so that no
        exchange can be fused with the GEMM; "" = the GEMM itself.
        """
        kind = "reduce_scatter" if self.how.sequence_parallel else "all_reduce"
        data_bytes = (rows or self.how.tokens) * self.model.hidden * self.how.dtype.bytes
        self.exchange(name, kind, data_bytes, self.how.tp, after=(after or gemm,), reduces="" if after else gemm)

    def gathered(self, name: str) -> None:
        """The all-gather before a GEMM whose input is divided (sequence parallelism)."""
        if self.how.sequence_parallel:
            self.exchange(name, "all_gather", self.row_bytes, self.how.tp)

    def gathered_again(self, name: str) -> tuple[str, ...]:
        """The all-gather of an input for the gradient of the weights: a GPU keeps only its part (sequence parallelism).

        It runs beside the GEMM of the input's gradient (arXiv 2205.05198, section 4.2.2). Returns its name, if any.
        """
        before = len(self.steps)
        self.gathered(name)
        return tuple(step.name for step in self.steps[before:])

    def wait_for(self, name: str, others: list[str]) -> None:
        """The first step called name (or name_0, ...) waits for those of `others` that there are, and for the step
        before it."""
        others = [step.name for step in self.steps if step.name in others]
        for number, step in enumerate(self.steps):
            if step.name in (name, f"{name}_0") and others:
                before = [each.name for each in self.steps[:number] if each.lane == Lane.COMPUTE][-1:]
                self.steps[number] = replace(step, after=(*before, *others))
