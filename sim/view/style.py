"""Common style of all figures: palette, sizes, and files that are equal to the byte for equal content."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracer.elf.names import short_names
from traces.errors import UserError
from traces.output import replacing
from traces.plain_text import shown
from traces.units import PS_PER_US

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000")
BLUE, ORANGE, GREEN, VERMILION, SKY = PALETTE[:5]
"""Okabe and Ito's palette. Colour-blind readers can distinguish its colours."""
FORMATS = (".png", ".svg", ".pdf")
DPI = 120
WITHOUT_MATPLOTLIB = "figures need matplotlib: pip install 't3sim[plots]'"


class Theme(NamedTuple):
    """Size of figures.

    Attributes:
        width_in: width of every figure; 0 = as the figure says.
        height: factor of the height of a figure with its own width.
        settings: rcParams of matplotlib.
    """

    width_in: float
    height: float
    settings: Any


THEMES = {
    "screen": Theme(0.0, 1.0, {}),
    "paper": Theme(
        3.35,
        0.75,
        {
            "font.size": 7.0,
            "axes.titlesize": "medium",
            "figure.titlesize": "medium",
            "lines.markersize": 3.5,
            "axes.linewidth": 0.6,
        },
    ),
}
"""Name -> theme. paper: one column of a paper in two columns."""
_THEME: ContextVar[Theme] = ContextVar("theme", default=THEMES["screen"])
GLYPH_EM = 0.58
"""Mean width of a character over the size of the font."""
SMALL = 0.833
"""Size of a small font over the size of the font (matplotlib)."""
POINTS_PER_IN = 72
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What matplotlib would write about time and version into a file of each format."""
HANDLE_CHARACTERS = 6
"""Width of the handle of an entry in a legend and of the gap after it."""


@contextmanager
def theme(name: str) -> Iterator[None]:
    """Draw figures in the theme of this name (THEMES) while the block runs."""
    import matplotlib

    before = _THEME.set(THEMES[name])
    try:
        with matplotlib.rc_context(THEMES[name].settings):
            yield
    finally:
        _THEME.reset(before)


def new_figure(
    width_in: float = 8.0, height_in: float = 3.0, rows: int = 1, columns: int = 1, dpi: int = DPI, **settings: Any
) -> tuple[Any, Any]:
    """(figure, axes) of matplotlib, without its global state. In a narrow theme panels stand below each other."""
    from matplotlib.figure import Figure

    chosen = _THEME.get()
    if chosen.width_in:
        width_in, height_in, rows, columns = chosen.width_in, height_in * chosen.height * columns, rows * columns, 1
    figure = Figure(figsize=(width_in, height_in), dpi=dpi, layout="constrained")
    return figure, figure.subplots(rows, columns, **settings)


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn.

    Raises:
        UserError: the path does not end with one of FORMATS, or matplotlib is missing.
    """
    if not can_draw():
        raise UserError(f"{path}: {WITHOUT_MATPLOTLIB}")
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: found {path.suffix or 'no ending'}, allowed are {', '.join(FORMATS)}")


def can_draw() -> bool:
    """Is matplotlib installed?"""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, according to its name. The file has no date and no version; text stays text.

    Raises:
        UserError: as `check_figure`, or the file cannot be written.
    """
    check_figure(path)
    import matplotlib

    settings: Any = {"svg.hashsalt": "t3sim", "svg.fonttype": "none", "pdf.fonttype": 42}
    with replacing(path) as temporary, matplotlib.rc_context(settings):
        figure.savefig(temporary, format=path.suffix.removeprefix("."), metadata=METADATA[path.suffix])


def times_us_of(results: Any) -> list[float]:
    """0 and the end of each interval of the time series of a run.

    Raises:
        UserError: the run has no time series.
    """
    if not results.series:
        raise UserError("this run has no time series: repeat it with --interval-ns")
    return [0.0, *(results.times_ps() / PS_PER_US)]


def from_start(values: Iterable[float]) -> list[float]:
    """Values of intervals, the first one twice: for steps ("pre") that begin with the first interval."""
    first, *others = values
    return [first, first, *others]


def legend_below(axes: Any, columns: int) -> None:
    """Draw the legend under all axes of the figure, in so many columns (or fewer) that it is not cut."""
    import matplotlib

    handles, labels = axes.get_legend_handles_labels()
    character_in = GLYPH_EM * SMALL * matplotlib.rcParams["font.size"] / POINTS_PER_IN
    entry_in = (max(map(len, labels), default=0) + HANDLE_CHARACTERS) * character_in
    fitting = max(1, int(axes.figure.get_figwidth() / entry_in))
    axes.figure.legend(
        handles, labels, loc="outside lower center", ncols=min(columns, fitting), frameon=False, fontsize="small"
    )


def title_of(results) -> str:
    """Title of a figure about one run: kernels and machine."""
    kernels = short_names([kernel.name for kernel in results.kernels]) or "no kernel"
    return label_of(f"{kernels}{chr(10) if _THEME.get().width_in else ' '}on {results.preset.name}")


def label_of(text: str) -> str:
    """A text from inputs as a label: control characters as escapes, `$` is no formula."""
    return "\n".join(map(shown, text.split("\n"))).replace("$", r"\$")
