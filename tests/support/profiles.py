"""Profiles of PyTorch, made here: the events that a profile of one GPU has."""

import gzip
import json

BF16 = "c10::BFloat16"


def operator(number, name, shapes, types=None, strides=None, values=None, **facts):
    """An operator; all its tensors are bf16 and contiguous if nothing else is said."""
    args = {
        "External id": number,
        "Input Dims": shapes,
        "Input type": types or [BF16 if shape else "Scalar" for shape in shapes],
        "Input Strides": strides or [contiguous(shape) for shape in shapes],
        "Concrete Inputs": values or [""] * len(shapes),
    }
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 0.0, "dur": 1.0, "pid": 1, "tid": 1, "args": args | facts}


def contiguous(shape):
    strides, width = [], 1
    for size in reversed(shape):
        strides.insert(0, width)
        width *= size
    return strides


def kernel(number, begin_us, time_us, name="a_kernel", device=0, **facts):
    args = {"External id": number, "device": device, "stream": 7, "correlation": number}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin_us, "dur": time_us, "pid": device, "tid": 7,
            "args": args | facts}  # fmt: skip


def nccl(number, begin_us, time_us, name, sent, received, gpus, dtype="BFloat16"):
    """A kernel of NCCL."""
    facts = {"Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "Group size": gpus,
             "dtype": dtype}  # fmt: skip
    return kernel(number, begin_us, time_us, f"ncclDevKernel_{name}", **facts)


def write_profile(path, events, gpus=1, gpu="NVIDIA H100 80GB HBM3", **top):
    whole = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": gpu}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": gpus},
        "traceEvents": events,
    }
    text = json.dumps(whole | top).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def layer(gpus=4):
    """One layer, two times: a norm, a GEMM, an all-reduce of its output, an unknown operator."""
    events = []
    for turn in range(2):
        first, us = 10 * turn, 1000.0 * turn
        events += [
            operator(first + 1, "aten::native_layer_norm", [[512, 512], [], [512], [512], []]),
            operator(first + 2, "aten::addmm", [[512], [512, 256], [256, 512], [], []]),
            operator(first + 3, "record_param_comms", [[512, 512], []]),
            operator(first + 4, "my::operator", [[512, 512]]),
            kernel(first + 1, us, 4.0),
            kernel(first + 2, us + 10, 6.5, "gemm"),
            kernel(first + 2, us + 17, 1.5, "splitk"),
            nccl(first + 3, us + 20, 30.0, "allreduce", 512 * 512, 512 * 512, gpus),
            kernel(first + 4, us + 60, 5.25 + turn, "mine"),
        ]
    return events
