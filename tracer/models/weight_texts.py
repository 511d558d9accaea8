"""The kernels of weights and gradients as texts: optimizer, copies, casts. `tracer.models.texts` has the sources."""

from tracer.data_type import DataType
from tracer.models.deployment import Deployment, Optimizer, Software
from tracer.models.kernel_text import cast_of, kernel_of, loop_of

FSDP2 = (Software.EAGER, Software.COMPILE)


def optimizer_texts(how: Deployment, parameters: int) -> list[tuple[str, str]]:
    """(name, kernel) of the update of `parameters` weights, gradient clipping first (LAMB has its own norms)."""
    gradient, scaled = how.gradient_type, how.gradient_type == DataType.FP16
    mixed = how.dtype.bytes < DataType.FP32.bytes and not how.casts_weights and not scaled
    update = kernel_of(how.optimizer, gradient, parameters=parameters, out=mixed and how.dtype)
    if how.optimizer == Optimizer.LAMB:
        return [("lamb", update)]
    if how.casts_weights:
        update += ",fused=false"
    if scaled:
        return [("adam", f"{update},scaled=true")]
    return [("gradient_clip", f"gradient_clip:parameters={parameters}"), ("adam", update)]


def gathered_weights(how: Deployment, rows: int, cols: int) -> list[str]:
    """Kernels behind a gather of rows x cols weights (ZeRO 2 and 3)."""
    sizes = {"rows": rows, "cols": cols, **loop_of(how, cols)}
    return [kernel_of("copy", how.dtype, **sizes)] if how.software in FSDP2 else []


def reduced_gradients(how: Deployment, rows: int, cols: int) -> list[str]:
    """Kernels before an exchange of rows x cols gradients in fp32 (without ZeRO, behind it too)."""
    sizes, cast = {"rows": rows, "cols": cols, **loop_of(how, cols)}, cast_of(how, rows, cols, DataType.FP32)
    if not how.casts_weights:
        return []
    whole = kernel_of("copy", DataType.FP32, **sizes)
    if how.zero < 2 or how.software in FSDP2:
        return [whole if how.zero < 2 else cast]
    casts = [cast] if how.dtype.bytes < DataType.FP32.bytes else []
    return [kernel_of("copy", how.dtype, **sizes), *casts, whole]
