"""Values that a shell completes: presets, fields of a machine, models, layers, workloads, kernels."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from sim.presets import presets
from sim.presets.load import machine_fields
from tracer.kernels import KERNELS, fields_of
from tracer.workloads import LAYERS, MODELS

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _beginning(names: Callable[[str], Iterable[str]]) -> Completer:
    """A completer of names. names: called with the incomplete word."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names(incomplete) if name.startswith(incomplete)]

    return complete


def complete_preset(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Presets; if none begins so, files."""
    found = [CompletionItem(name) for name in presets() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]  # a .toml file of the user


def _kernels(incomplete: str) -> list[str]:
    """Kernels; after the colon and after each comma, the fields that are not given yet."""
    name, colon, given = incomplete.partition(":")
    if not colon or name not in KERNELS:
        return [f"{kernel}:" for kernel in KERNELS]
    kept = given.rpartition(",")[0]
    taken = {part.partition("=")[0] for part in kept.split(",")}
    start = f"{name}:{kept}," if kept else f"{name}:"
    return [f"{start}{field}=" for field in fields_of(name) if field not in taken]


PRESET: Completer = complete_preset
FIELD = _beginning(lambda _: [f"{field}=" for field in machine_fields()])
MODEL = _beginning(lambda _: MODELS)
LAYER = _beginning(lambda _: LAYERS)
WORKLOAD = _beginning(
    lambda _: [f"{model.name}/{layer}/tp{tp}" for model in MODELS.values() for layer in LAYERS for tp in model.tp]
)
KERNEL = _beginning(_kernels)
