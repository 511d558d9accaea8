"""Common style of all figures: palette, sizes, and files that are equal to the byte for equal content."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.elf.names import short_name
from traces.errors import UserError
from traces.write import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000")
BLUE, ORANGE, GREEN, VERMILION, SKY = PALETTE[:5]
"""Okabe and Ito's palette. Colour-blind readers can distinguish its colours."""
FORMATS = (".png", ".svg")
DPI = 120


def new_figure(
    width_in: float = 8.0, height_in: float = 3.0, rows: int = 1, columns: int = 1, dpi: int = DPI, **settings: Any
) -> tuple[Any, Any]:
    """(figure, axes) of matplotlib, without its global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=dpi, layout="constrained")
    return figure, figure.subplots(rows, columns, **settings)


def check_format(path: Path) -> None:
    """Refuse a path that does not end with .png or .svg.

    Raises:
        UserError: another ending.
    """
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: found {path.suffix or 'no ending'}, allowed are {' and '.join(FORMATS)}")


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG or SVG, according to its name. The file has no date and no version; text stays text.

    Raises:
        UserError: another ending, or the file cannot be written.
    """
    import matplotlib

    check_format(path)
    metadata = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
    settings: Any = {"svg.hashsalt": "t3sim", "svg.fonttype": "none"}
    with replacing(path) as temporary, matplotlib.rc_context(settings):
        figure.savefig(temporary, format=path.suffix.removeprefix("."), metadata=metadata)


def legend_below(axes, columns: int) -> None:
    """Draw the legend under the axes, away from the data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns, frameon=False)


def title_of(results) -> str:
    """Title of a figure about one run: kernels and machine."""
    names = [short_name(kernel.name) for kernel in results.kernels]
    shown = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else "no kernel"
    return f"{shown} on {results.preset.name}"
