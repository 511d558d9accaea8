"""Embedding: row token[r] of a table [vocab, hidden] becomes row r of the output. Backward the gradient is added there.

S = whole sectors of 32 bytes of a row, D = number of distinct tokens:

forward:   requested by loads tokens * S and an index of 4 bytes per access; DRAM reads D * S + indices if L2 holds the
           rows that repeat; DRAM writes tokens * S
backward:  the gradient rows are read and added to the table of 4-byte gradients in L2 (atomic adds): DRAM reads
           tokens * S + indices + D rows of 4-byte elements, DRAM writes D rows of 4-byte elements
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.even_kernel import EvenKernel
from tracer.operators.index import Index, Spread
from tracer.operators.operator import Operator
from tracer.operators.row_move import INDEX_BYTES, Move, RowMove

GRADIENT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Embedding(Operator):
    """The embedding of a batch of tokens.

    Attributes:
        backward: the gradient of the table.
        vector: elements of a lane per access; 0 = 16 bytes. unroll: accesses of a warp.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "embedding"

    tokens: int
    hidden: int
    vocab: int = 32000
    backward: bool = False
    vector: int = 0
    unroll: int = 2

    def parts(self) -> tuple[EvenKernel, ...]:
        b = self.dtype.bytes
        each = GRADIENT_BYTES if self.backward else b
        table, rows, index = self.buffers(
            self.vocab * self.hidden * each, self.tokens * self.hidden * b, self.tokens * INDEX_BYTES
        )
        name, move = ("embedding_backward", Move.REDUCE) if self.backward else ("embedding", Move.GATHER)
        kernel = RowMove(
            name, move, self.hidden, b, rows, table, index, Index(Spread.VOCABULARY, self.tokens, 1, self.vocab),
            table_bytes=each, vector=self.vector, unroll=self.unroll, lanes=self.lanes,
        )  # fmt: skip
        return (kernel,)
