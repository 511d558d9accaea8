"""DRAM traffic of a run over time, by stream: `python -m validation.figures.dram_traffic RESULT.h5 FIGURE.png`.

The figure of README.md is made by

    t3sim run --workload t-nlg/fc2/tp8 --preset t3_2024 --interval-ns 5000 -o t-nlg-fc2-tp8.h5
    python -m validation.figures.dram_traffic t-nlg-fc2-tp8.h5 validation/figures/t-nlg-fc2-tp8-dram.png
"""

import sys
from pathlib import Path

from sim.results import Results, open_results
from sim.units import GIGA, PS_PER_US, bytes_per_s
from traces.errors import UserError
from traces.write import replacing

STREAMS = {
    "dram_compute_read_bytes": ("GEMM reads", "#0072B2"),
    "dram_compute_write_bytes": ("GEMM writes", "#E69F00"),
    "dram_comm_read_bytes": ("communication reads", "#56B4E9"),
    "dram_comm_write_bytes": ("communication writes and updates", "#D55E00"),
}
"""Column of the time series -> label and colour (Okabe and Ito's palette, which the colour-blind can tell apart)."""


def draw(results: Results, path: Path) -> None:
    """Stacked bandwidth of the streams that moved anything, under the peak of the machine.

    Raises:
        UserError: a run without a time series, or a figure that cannot be written.
    """
    from matplotlib.figure import Figure

    if not results.series:
        raise UserError("this run took no time series: repeat it with --interval-ns")
    moved = [name for name in STREAMS if results.series[name].any()]
    rates = [bytes_per_s(results.series[name], results.interval_ps) / GIGA for name in moved]
    labels = [f"{STREAMS[name][0]}, {results.series[name].sum() / GIGA:.3g} GB in all" for name in moved]
    times_us = results.times_ps() / PS_PER_US
    peak = results.preset.peaks().dram_bytes_per_s / GIGA

    figure = Figure(figsize=(8, 3), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.stackplot(times_us, rates, labels=labels, colors=[STREAMS[name][1] for name in moved], step="pre")
    axes.axhline(peak, color="black", linestyle="--", linewidth=1, label=f"peak, {peak:,.0f} GB/s")
    axes.set(
        xlabel="time (µs)",
        ylabel="DRAM traffic (GB/s)",
        title=f"{', '.join(kernel.name for kernel in results.kernels)} on {results.preset.name}",
        xlim=(0, times_us[-1]),
        ylim=(0, None),
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(moved) + 1, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        draw(open_results(arguments[0]), Path(arguments[1]))
    except UserError as mistake:
        print(f"dram_traffic: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
