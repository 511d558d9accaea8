"""Tables of the report, one for each kind of experiment."""

from collections.abc import Mapping

from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL
from traces.command.document import Block, Table, Text
from traces.command.tables import number_text
from validation.experiments.ablation import Ablation
from validation.experiments.collectives import ScatterSizes
from validation.experiments.cu_split import CuSplit
from validation.experiments.experiment import Experiment
from validation.experiments.layers import Layers
from validation.experiments.model_steps import CLASSES, KINDS, ModelSteps
from validation.experiments.search import Search
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import scenario_names
from validation.report.search_blocks import search_blocks

SPLIT_COLUMNS = {
    "gemm_share_slowdown": "GEMM slower, alone (%)",
    "rs_share_slowdown": "RS slower, alone (%)",
    "gemm_slowdown": "GEMM slower, at once (%)",
    "rs_slowdown": "RS slower, at once (%)",
    "share_speedup": "speed-up, alone",
    "speedup": "speed-up, at once",
}
ABLATION_COLUMNS = {
    "own/gemm_slowdown": "own updates (%)",
    "own_arriving/gemm_slowdown": "own + arriving (%)",
    "own_dma/gemm_slowdown": "own + DMA reads (%)",
    "arriving_dma/gemm_slowdown": "arriving + DMA reads (%)",
    "every/gemm_slowdown": "all three (%)",
    "t3/gemm_slowdown": "T3 (%)",
    "t3_mca/gemm_slowdown": "T3-MCA (%)",
    "t3/overlap_loss": "T3 beyond max(GEMM, RS) (%)",
    "t3_mca/overlap_loss": "T3-MCA beyond (%)",
    "gemm_read_MB": "GEMM reads (MB)",
}
ABLATION_WORDS = (
    "Slow-downs of the kernel against the GEMM alone, under round-robin arbitration (except T3-MCA). own updates: only "
    "the GEMM's near-memory updates; the stores of the first chunk leave over the link, as in all columns with own "
    "updates. own + arriving: also updates that arrive over the link, as sent by a GPU with own updates and DMA reads; "
    "nothing is forwarded. own + DMA reads: also each tile is read and forwarded when its own updates are counted; "
    "nothing arrives. arriving + DMA reads: arriving tiles are forwarded as soon as they are complete; the GEMM stores "
    "as it does alone, into another buffer through L2. all three: T3 beside a GPU that has own updates and DMA reads. "
    "T3: beside a GPU that is synchronous with it, as one GPU represents all. beyond: time of all over the longer of "
    "GEMM and reduce-scatter, each alone."
)
KIND_WORDS = (
    "The kernels of a layer by class of arXiv 2007.00072: contractions; normalisation (softmax with the dropout of the "
    "scores, layer norms, and sums over the tokens, which is assumed); element-wise operators."
)
Answers = Mapping[str, float]


def answer_tables(experiment: Experiment, answers: Answers) -> list[Block]:
    """Tables of an experiment. A kind without a special table lists all answers."""
    match experiment:
        case Sublayers():
            return [sublayer_table(experiment, answers)]
        case Layers():
            return [layer_table(experiment, answers)]
        case CuSplit():
            return [split_table(experiment, answers)]
        case Ablation():
            return [ablation_table(experiment, answers), Text(ABLATION_WORDS)]
        case Search():
            return search_blocks(experiment, answers)
        case ScatterSizes():
            return [size_table(experiment, answers)]
        case ModelSteps():
            return [step_table(experiment, answers), Text(KIND_WORDS), kind_table(experiment, answers)]
    return [Table(("answer", "value"), [(key, number_text(answers[key])) for key in answers], ("value",))]


def sublayer_table(experiment: Sublayers, answers: Mapping[str, float]) -> Table:
    """One row per sub-layer: times of Sequential, speed-ups, DRAM traffic."""
    shown = [name for name in experiment.configurations if name != SEQUENTIAL]
    columns = ["GEMM (µs)", "RS (µs)", "AG (µs)", *shown, "DRAM, T3-MCA (%)", "without AG (%)"]
    keys = [f"{SEQUENTIAL}/gemm_us", f"{SEQUENTIAL}/rs_us", f"{SEQUENTIAL}/ag_us"]
    keys += [f"{name}/speedup" for name in shown] + ["T3-MCA/dram_change", "T3-MCA/dram_change_without_ag"]
    rows = [
        [name, *(_short(key, answers[f"{name}/{key}"]) for key in keys)]
        for name in scenario_names(experiment.scenarios)
    ]
    for mean in ("geomean", "max"):
        cells = [_short(key, answers[f"{mean}/{key}"]) if f"{mean}/{key}" in answers else "" for key in keys]
        rows.append([mean, *cells])
    return Table(["case", *columns], rows, columns)


def layer_table(experiment: Layers, answers: Mapping[str, float]) -> Table:
    shown = [name for name in CONFIGURATIONS if name != SEQUENTIAL]
    columns = ["layer (µs)", "share (%)", *shown]
    rows = []
    for run in ("training", "inference"):
        for model in experiment.models:
            at = f"{run}/{model}"
            times = [f"{answers[f'{at}/{SEQUENTIAL}/layer_us']:,.0f}", f"{100 * answers[f'{at}/share']:.1f}"]
            rows.append([f"{run}, {model}", *times, *(f"{answers[f'{at}/{name}/speedup']:.3f}" for name in shown)])
    return Table(["model", *columns], rows, columns)


def split_table(experiment: CuSplit, answers: Answers) -> Table:
    """One row per sub-layer and split: slow-downs of each kernel alone and of both at once."""
    splits = sorted({key.split("/")[-2] for key in answers if key.endswith("/rs_slowdown")}, reverse=True)
    rows = [
        [name, split, *(_short(key, answers[f"{name}/{split}/{key}"]) for key in SPLIT_COLUMNS)]
        for name in scenario_names(experiment.scenarios)
        for split in splits
    ]
    means = [["geomean", split, *[""] * 5, _short("speedup", answers[f"geomean/{split}/speedup"])] for split in splits]
    return Table(["case", "CUs", *SPLIT_COLUMNS.values()], rows + means, list(SPLIT_COLUMNS.values()))


def ablation_table(experiment: Ablation, answers: Answers) -> Table:
    """One row per sub-layer and seed. Seed 0 has no jitter."""
    rows = [
        [name, str(seed), *(_short(key, answers[f"{name}/seed{seed}/{key}"]) for key in ABLATION_COLUMNS)]
        for name in scenario_names(experiment.scenarios)
        for seed in (0, *experiment.seeds)
    ]
    return Table(["case", "seed", *ABLATION_COLUMNS.values()], rows, list(ABLATION_COLUMNS.values()))


def size_table(experiment: ScatterSizes, answers: Answers) -> Table:
    columns = {"rs_us": "RS (µs)", "rs_nmc_us": "RS + NMC (µs)", "ag_us": "AG (µs)"}
    rows = [
        [str(gpus), str(size), *(_short(key, answers[f"{gpus}/{size}MB/{key}"]) for key in columns)]
        for gpus in experiment.gpus
        for size in experiment.sizes_MB
    ]
    return Table(["GPUs", "MB", *columns.values()], rows, ["GPUs", "MB", *columns.values()])


def step_table(experiment: ModelSteps, answers: Answers) -> Table:
    """One row per case: time, share of each class, gain of an optimizer near memory."""
    columns = ["time (ms)", *(f"{name} (%)" for name in CLASSES), "optimizer at the banks"]
    rows = []
    for case in experiment.cases:
        time_ms = answers[f"{case}/time_ms"]
        shares = [100 * answers[f"{case}/{name.replace(' ', '_')}_ms"] / time_ms for name in CLASSES]
        gain = f"{answers[f'{case}/near_memory_speedup']:.3f}"
        rows.append([case, f"{time_ms:,.1f}", *(f"{share:.1f}" for share in shares), gain])
    return Table(["case", *columns], rows, columns)


def kind_table(experiment: ModelSteps, answers: Answers) -> Table:
    """One row per case: share of each class of arXiv 2007.00072 in the kernels of a layer."""
    rows = [[case, *(f"{answers[f'{case}/layer_{kind}_share']:.1f}" for kind in KINDS)] for case in experiment.cases]
    columns = [f"{kind} (%)" for kind in KINDS]
    return Table(["a layer, forward and backward", *columns], rows, columns)


def _short(key: str, value: float) -> str:
    return f"{value:.3f}" if key.endswith("speedup") else f"{value:,.1f}"
