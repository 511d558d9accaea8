"""Types of matrix elements that the arithmetic of a machine has, by preset.

Sources: NVIDIA white papers of V100 (WP-08608), A100 and H100; AMD CDNA 2 architecture white paper. A machine that is
not named here (a .toml file) has all types.
"""

from sim.presets.preset import Preset
from tracer.data_type import DataType
from traces.errors import UserError

VOLTA = (DataType.FP16, DataType.FP32, DataType.FP64, DataType.INT8)
AMPERE = (*VOLTA, DataType.BF16)
HOPPER = tuple(DataType)
TYPES = {
    "v100": VOLTA,
    "accelsim_qv100": VOLTA,
    "a100_80g": AMPERE,
    "accelsim_a100": AMPERE,
    "mi210": AMPERE,
    "h200": HOPPER,
}


def check_data_type(preset: Preset, data_type: DataType, where: str) -> None:
    """Refuse a type that the machine lacks.

    Raises:
        UserError: names the field, the type, the machine and its types.
    """
    allowed = TYPES.get(preset.name, HOPPER)
    if data_type not in allowed:
        raise UserError(f"{where}: found {data_type}, which {preset.name} lacks; allowed are {', '.join(allowed)}")
