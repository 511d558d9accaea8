"""Matrix instructions: multiply-accumulates and register counts from the shape in the opcode.

`HMMA.16816.F32` multiplies 16 x 16 by 16 x 8 for the whole warp. `HMMA.884.F32.F32.STEP0` is one of four steps (two
with fp16 accumulation) of a warp-wide 4 x (8 x 8 x 4). Four warps execute `HGMMA.64x128x16.F32` together; each does a
quarter.
"""

import re

_SHAPE_WITH_X = re.compile(r"(\d+)x(\d+)x(\d+)")
_BITS = {
    "S4": 4, "U4": 4, "S8": 8, "U8": 8, "E4M3": 8, "E5M2": 8, "TF32": 32, "F64": 64, "BF16": 16, "BF16_V2": 16,
}  # fmt: skip
_DEFAULT_BITS = {"HMMA": 16, "IMMA": 8, "DMMA": 64, "BMMA": 1, "QMMA": 8, "OMMA": 4}
WARPS_PER_GROUP = 4
_COST = {64: 16.0, 32: 2.0, 16: 1.0, 8: 0.5, 4: 0.25, 1: 1 / 16}
"""Bits of an operand -> time of a multiply-accumulate, relative to fp16: the peaks in the data sheet of A100."""


def _shape(token: str) -> tuple[int, int, int] | None:
    """(m, n, k) of `884`, `1688`, `16816`, `88128`, `64x128x16`. n is 8 if the form has no x."""
    match = _SHAPE_WITH_X.fullmatch(token)
    if match:
        m, n, k = (int(number) for number in match.groups())
        return (m, n, k) if max(m, n, k) <= 1024 else None
    for prefix, m in (("168", 16), ("88", 8)):
        if token.startswith(prefix) and token[len(prefix) :].isdigit() and len(token) <= 6:
            return m, 8, int(token[len(prefix) :])
    return None


def _operand_bits(base: str, tokens: list[str]) -> int:
    usual = _DEFAULT_BITS.get(base.replace("GMMA", "MMA"), 16)
    return next((_BITS[token] for token in tokens if token in _BITS), usual)


def mac_cost(base: str, tokens: list[str]) -> float:
    """Time of a multiply-accumulate, relative to fp16. Sparse instructions (SP) skip half of those of their shape."""
    return _COST[_operand_bits(base, tokens)] * (0.5 if "SP" in tokens else 1.0)


def tensor_shape(base: str, tokens: list[str]) -> tuple[int, tuple[int, ...], int]:
    """Work of one warp's matrix instruction.

    Returns:
        (multiply-accumulates, registers read from sources A, B, C, registers written). If the opcode has no shape: no
        work, one register each.
    """
    shape = next(filter(None, map(_shape, tokens)), None)
    if shape is None:
        return 0, (1, 1, 1), 1
    m, n, k = shape
    if "GMMA" in base:  # operands A in registers or shared memory, B in shared memory
        return m * n * k // WARPS_PER_GROUP, (1, 1, 1), 1
    accumulate_f32 = base != "HMMA" or "F32" in tokens
    if base == "HMMA" and shape == (8, 8, 4):
        return (256, (2, 2, 2), 2) if accumulate_f32 else (512, (2, 2, 2), 2)
    bits = _operand_bits(base, tokens)
    accumulator_bits = 64 if base == "DMMA" else (32 if accumulate_f32 else 16)
    registers = [max(1, elements * size // 1024) for elements, size in
                 ((m * k, bits), (n * k, bits), (m * n, accumulator_bits))]  # fmt: skip
    return m * n * k, tuple(registers), registers[2]
