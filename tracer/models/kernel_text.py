"""The text of a kernel (`tracer.kernels`), with the loop over elements that a software has."""

from math import gcd
from typing import Any

from tracer.data_type import DataType
from tracer.models.deployment import Deployment, Software

ELEMENT_WISE = ("bias", "copy", "dropout", "residual")
"""Operators whose kernels PyTorch's loop over elements makes (the gradient of a bias is a sum instead)."""
COMPILED = ("cross_entropy", "gelu", "rotary", "swiglu")
"""Others that torch.compile makes, beside norms and softmax."""
LOOPS: dict[Software, dict[str, Any]] = {
    Software.EAGER: {"unroll": 1, "warps": 4},
    Software.EAGER_2023: {"vector": 4, "unroll": 1, "warps": 4},
    Software.EAGER_2019: {"vector": 1, "unroll": 1, "warps": 16},
    Software.COMPILE: {"library": "inductor"},
}
"""PyTorch's loop over elements: of 2.7 and later, 16 bytes of a lane (aten/src/ATen/native/cuda/CUDALoops.cuh); before,
4 elements, here fewer if they do not divide a row (MemoryAccess.cuh, `can_vectorize_up_to`); before 1.5, one element of
a lane and workgroups of 512 lanes (pytorch/pytorch issue 31975, pull request 31974)."""


def kernel_of(name: str, dtype: DataType, **fields: object) -> str:
    """The text of a kernel. Fields that are False are left out."""
    given = {field: value for field, value in fields.items() if value is not False}
    values = ",".join(f"{field}={str(value).lower()}" for field, value in given.items())
    return f"{name}:{values},dtype={dtype}"


def loop_of(how: Deployment, cols: int) -> dict[str, Any]:
    """Fields of a loop over elements in rows of `cols`."""
    loop = LOOPS.get(how.software, {})
    return loop | {"vector": gcd(loop["vector"], cols)} if "vector" in loop else loop


def cast_of(how: Deployment, rows: int, cols: int, out: DataType) -> str:
    """A copy of rows x cols elements in another type: from fp32 to that of the model, or back."""
    source = how.dtype if out == DataType.FP32 else DataType.FP32
    return kernel_of("copy", source, rows=rows, cols=cols, **loop_of(how, cols), out=out)
