"""Dispatch and combine of experts, as DeepEP and NCCL EP publish them, against our all-to-all.

`python -m validation.against.expert_exchange` writes `validation/tables/expert_exchange.md`. Published:
`validation/references/moe_dispatch_published.csv`; its rows within a node. Most are bandwidths: bytes of a GPU over
time, with the rows that it keeps (tests/legacy/test_intranode.py, test_low_latency.py and tests/elastic/test_ep.py of
DeepEP; ep_bench.cu of NCCL EP). Ours: the all-to-all of the machine's library with as many bytes of each GPU, as
`t3sim model` has it for experts (`tracer.models.layer.sent_rows`).
"""

from dataclasses import dataclass
from pathlib import Path

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.collective import Collective, simulate_collective
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, Software
from tracer.models.layer import sent_rows
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.units import PS_PER_NS, PS_PER_US
from validation.csv_file import read_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
REFERENCE = HERE / "references" / "moe_dispatch_published.csv"
NOTES = HERE / "against" / "expert_exchange_notes.md"
TABLE = HERE / "tables" / "expert_exchange.md"
MODEL = load_model("deepseek-v3")
"""All rows have its hidden size and 8 of its 256 experts for each token."""
GPUS = 8
SCALE_BYTES, SCALED, INFO_BYTES = 4, 128, 16
"""An fp8 row has a scale for 128 elements; a low-latency row also 16 bytes about its origin."""
H800 = ("h100_sxm", ("link.GB_per_s=200",))
H100, B200 = ("h100_sxm", ()), ("b200", ())
COLUMNS = ("library", "machine", "operation", "MB of a GPU", "published (us)", "ours (us)", "error")


@dataclass(frozen=True)
class Case:
    """A published operation.

    Attributes:
        mode, operation, gpus: columns library_mode, operation and EP of the file.
        machine: our preset and its changes; name: what it stands for.
        tokens: of a GPU.
        once: a token goes once to each GPU, not to each of its experts.
        fp8, info: the row's elements have one byte; it has INFO_BYTES more.
    """

    mode: str
    operation: str
    gpus: str
    name: str
    machine: tuple[str, tuple[str, ...]]
    tokens: int
    once: bool
    fp8: bool = False
    info: bool = False

    @property
    def row_bytes(self) -> int:
        if not self.fp8:
            return 2 * MODEL.hidden
        return MODEL.hidden + MODEL.hidden // SCALED * SCALE_BYTES + INFO_BYTES * self.info

    @property
    def data_bytes(self) -> int:
        """What a GPU sends, its own rows included."""
        how = Deployment(tp=GPUS, ep=GPUS, software=Software.FUSED if self.once else Software.EAGER)
        return sent_rows(MODEL, how, self.tokens) * self.row_bytes

    @property
    def published_us(self) -> float:
        row = published()[self.mode, self.gpus, self.operation]
        if row["latency_us"]:
            return float(row["latency_us"])
        return self.data_bytes / float(row["bandwidth"]) * PS_PER_NS / PS_PER_US

    def ours_us(self, store: Store | None) -> float:
        asked = Collective(load_preset(*self.machine), "all_to_all", GPUS, self.data_bytes)
        return simulate_collective(asked, store).time_ns * PS_PER_NS / PS_PER_US


V1, LOW = "V1 normal", "V1 low-latency"
CASES = (
    Case(V1, "dispatch FP8", "8 (intranode)", "H800", H800, 4096, once=True, fp8=True),
    Case(V1, "combine BF16", "8 (intranode)", "H800", H800, 4096, once=True),
    Case(LOW, "dispatch FP8", "8", "H800", H800, 128, once=False, fp8=True, info=True),
    Case(LOW, "combine BF16", "8", "H800", H800, 128, once=False),
    *(
        Case(f"V2 {sms} SMs", operation, "8", "B200", B200, 8192, once=True, fp8=operation == "dispatch")
        for sms in (64, 24)
        for operation in ("dispatch", "combine")
    ),
    *(
        Case("NCCL EP LL BF16", operation, "8", "H100", H100, 128, once=False)
        for operation in ("dispatch", "combine")
    ),
)  # fmt: skip


def published() -> dict[tuple[str, str, str], dict[str, str]]:
    """(library_mode, EP, operation) -> the row."""
    return {(row["library_mode"], row["EP"], row["operation"]): row for row in read_csv(REFERENCE)}


def cells(case: Case, ours_us: float) -> list[str]:
    """A row of the table."""
    library = case.mode if case.mode.startswith("NCCL") else f"DeepEP {case.mode}"
    times = f"{case.published_us:,.0f}", f"{ours_us:,.0f}", f"{100 * (ours_us / case.published_us - 1):+.0f} %"
    return [library, case.name, case.operation, f"{case.data_bytes / 1e6:,.1f}", *times]


def table(ours_us: dict[Case, float]) -> str:
    """All cases as Markdown, with the explanation of NOTES."""
    mean = mean_errors([us / case.published_us - 1 for case, us in ours_us.items()]).absolute
    head = (
        "Generated by `python -m validation.against.expert_exchange`. Published: rows within a node of\n"
        "`validation/references/moe_dispatch_published.csv`. Ours: `t3sim collective all_to_all --gpus 8` with as\n"
        "many bytes. No value is calibrated with these rows.\n"
        f"Mean absolute error: {100 * mean:.0f} % of {len(ours_us)} rows."
    )
    rows = [cells(case, us) for case, us in ours_us.items()]
    heading = Heading("Dispatch and combine of experts", 1)
    return to_markdown([heading, Text(head), Table(COLUMNS, rows), notes(NOTES)])


def main() -> None:
    store = Store()
    write_page(TABLE, table({case: case.ours_us(store) for case in CASES}))


if __name__ == "__main__":
    without_options(__doc__)
    main()
