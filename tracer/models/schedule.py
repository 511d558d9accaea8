"""The schedule of a model: steps (kernels and collectives) of one GPU, in blocks, with what each step waits for."""

from dataclasses import dataclass
from enum import StrEnum


class OperatorClass(StrEnum):
    """Classes of operators in tables and figures."""

    MATRIX = "matrix"
    ATTENTION = "attention"
    NORM = "norm and element-wise"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"


class Lane(StrEnum):
    """What runs one step at a time. Steps of different lanes run at the same time."""

    COMPUTE = "compute"
    TENSOR = "tensor-parallel communication"
    CONTEXT = "context-parallel communication"
    DATA = "data-parallel communication"
    REPLICAS = "sums over replicas"
    PIPELINE = "pipeline communication"


@dataclass(frozen=True)
class Exchange:
    """A collective, or a send to one GPU.

    Attributes:
        kind: all_reduce, reduce_scatter, all_gather, all_to_all or send_recv.
        bytes: of the whole buffer (all_to_all: what one GPU holds).
        gpus: in the group.
        stride: distance of the numbers of two neighbours in the group: 1 = GPUs side by side. Tensor-parallel GPUs are
            side by side, then come data and pipeline parallelism (Megatron-LM, core/parallel_state.py). Of a send: from
            the first to the last stage, so that it is between nodes if any send is.
    """

    kind: str
    bytes: int
    gpus: int
    stride: int = 1

    @property
    def whole_bytes(self) -> int:
        """The buffer that is cut into chunks: in send_recv each of the two GPUs sends a half."""
        return self.bytes * (2 if self.kind == "send_recv" else 1)


@dataclass(frozen=True)
class Step:
    """One kernel or exchange.

    Attributes:
        name: unique in its block.
        operator_class: for tables.
        work: a kernel's text (`tracer.kernels`) or an Exchange.
        after: names of steps of the block that must have ended; () = the step before it in the block.
        reduces: the GEMM of the block whose output this exchange reduces: T3 can fuse the two. "" = none.
        once: only in the last micro-batch.
    """

    name: str
    operator_class: OperatorClass
    work: str | Exchange
    after: tuple[str, ...] = ()
    lane: Lane = Lane.COMPUTE
    reduces: str = ""
    once: bool = False


@dataclass(frozen=True)
class Block:
    """Steps that repeat, for example the forward pass of a layer.

    Attributes:
        name: for tables and timelines.
        steps: in the order of issue on the compute lane.
        repeats: one after the other.
        leaves: names of steps that the next block does not wait for.
        outer: outside the layers: not on every stage of a pipeline.
    """

    name: str
    steps: tuple[Step, ...]
    repeats: int = 1
    leaves: frozenset[str] = frozenset()
    outer: bool = False


@dataclass(frozen=True)
class Schedule:
    """One iteration on one GPU.

    Attributes:
        forward, backward: blocks of one micro-batch on one pipeline stage.
        finish: blocks after the last micro-batch; they wait for everything.
        micro_batches: in the iteration.
        stages: of the pipeline. interleave: parts of the model on each.
        handover: sends of one micro-batch to the next stage (and back, in training).
    """

    forward: tuple[Block, ...]
    backward: tuple[Block, ...] = ()
    finish: tuple[Block, ...] = ()
    micro_batches: int = 1
    stages: int = 1
    interleave: int = 1
    handover: tuple[Step, ...] = ()

    def blocks(self) -> tuple[Block, ...]:
        """All blocks."""
        return self.forward + self.backward + self.finish
