"""Read experiments from their TOML files. A new experiment of an existing kind needs no code."""

from pathlib import Path

import msgspec

from traces.errors import UserError
from traces.toml_file import read_toml
from validation.experiments.ablation import Ablation
from validation.experiments.bert_layer import BertLayer
from validation.experiments.collectives import ScatterGain, ScatterSizes
from validation.experiments.cu_split import CuSplit
from validation.experiments.experiment import Experiment
from validation.experiments.gemm_time import GemmTime
from validation.experiments.layers import Layers
from validation.experiments.machines import MachineCollectives, Mi300xGemm, Microbenchmarks
from validation.experiments.model_steps import ModelSteps
from validation.experiments.operator_time import OperatorTime
from validation.experiments.references import AccelSimCycles, GemmCounters, HbmChannel
from validation.experiments.search import Search
from validation.experiments.sublayers import Sublayers

FOLDER = Path(__file__).parent
Kind = (
    Sublayers
    | ScatterGain
    | ScatterSizes
    | CuSplit
    | Layers
    | Search
    | Ablation
    | HbmChannel
    | GemmCounters
    | AccelSimCycles
    | Microbenchmarks
    | Mi300xGemm
    | GemmTime
    | MachineCollectives
    | OperatorTime
    | ModelSteps
    | BertLayer
)


def load_experiments(folder: Path = FOLDER) -> dict[str, Experiment]:
    """Name of each file (without .toml) -> its experiment, sorted by name.

    Raises:
        UserError: an invalid file. The message names the file and the mistake.
    """
    experiments: dict[str, Experiment] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            experiments[path.stem] = msgspec.convert(read_toml(path), Kind)
        except msgspec.ValidationError as problem:
            raise UserError(f"{path.name}: {problem}") from None
    return experiments
