"""Types of matrix elements by name."""

from enum import StrEnum


class DataType(StrEnum):
    """Type of a matrix element. Traffic depends only on its size."""

    FP8 = "fp8"
    INT8 = "int8"
    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return ELEMENT_BYTES[self]


ELEMENT_BYTES = {
    DataType.FP8: 1,
    DataType.INT8: 1,
    DataType.FP16: 2,
    DataType.BF16: 2,
    DataType.TF32: 4,
    DataType.FP32: 4,
    DataType.FP64: 8,
}
