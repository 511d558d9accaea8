"""Good inputs of every kind, ways to damage them, and the verbs that read them: what `tests.support.fuzz` tries."""

import json
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from sim.presets import load_preset
from sim.results import write_results
from sim.run.one_gpu import simulate
from sim.run.run import gemm_run
from sim.run.store import STATE, Store, run_or_get
from sim.scenario.archive import write_scenario
from sim.scenario.scenario import Scenario, simulate_scenario
from tests.support.hostile import ordinary_kernel
from tests.support.interrupted import Interrupted, PulledPlug
from tests.support.paths import ROOT
from tests.support.profiles import layer, write_profile
from tests.support.programs import SMALL
from tests.support.sealed import changed_archive
from tests.support.trace_samples import ListSource
from tracer.accelsim.writer import export_accelsim
from tracer.kernels import make_kernel
from tracer.workloads import DEFAULT_KERNEL, aligned_problem
from traces.archive import open_archive, write_archive
from traces.source import Prefill

VALUES = (0, 1, -1, 2, 16, 63, 64, 255, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WORDS = ("nan", "inf", "-1", "0", "1e12", "1e-6", "[1]", "{}", '""', "true", "99999999999999999999", '"\\u001b[2J"')
JSON_VALUES = (None, True, [], [1], {}, {"a": [1]}, "", "x", -1, 0, 1.5, 1 << 70, float("nan"), float("inf"))
STORED, UNFINISHED = "gemm:m=64,n=64,k=32", "gemm:m=128,n=128,k=64"
PLAN = """
from sim.collective.space import Region, Send
from sim.hw.request import Op

def distances(gpus):
    return (1,)

def fused_regions(chunks, gpu):
    regions = []
    for local in range(chunks.gpus):
        tiles = chunks.span(gpu, local)
        if local == 0:
            regions.append(Region(tiles.start, tiles.stop, to=(1,), op=Op.UPDATE))
        else:
            sends = (Send(1),) if chunks.owner_distance(local) else ()
            regions.append(Region(tiles.start, tiles.stop, op=Op.UPDATE, expects=2, sends=sends, chunk=local))
    return regions
"""


class Target(NamedTuple):
    """A kind of input.

    Attributes:
        name: of the kind.
        file: a good one.
        damage: (path, random) -> changes the file at the path.
        verbs: that read it; IN is the file, OUT a name to write, TEXT the content of the file.
        store: is the file in the store of finished runs?
    """

    name: str
    file: Path
    damage: Any
    verbs: tuple[tuple[str, ...], ...]
    store: bool = False


def flip_bytes(path, random):
    """Up to four bytes, anywhere."""
    content = bytearray(path.read_bytes())
    for place in random.integers(0, len(content), random.integers(1, 5)):
        content[place] ^= 1 << int(random.integers(8)) if random.random() < 0.5 else 0xFF
    if random.random() < 0.1:
        del content[int(random.integers(len(content))) :]
    path.write_bytes(content)


def change_values(path, random):
    """A few values of datasets, or an attribute; the seal is renewed."""
    with changed_archive(path) as file:
        names = []
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        for _ in range(random.integers(1, 4)):
            dataset = file[names[random.integers(len(names))]]
            if dataset.size and dataset.dtype.kind in "iuf":
                low = np.iinfo(dataset.dtype) if dataset.dtype.kind in "iu" else None
                value = VALUES[random.integers(len(VALUES))]
                value = min(max(value, low.min), low.max) if low else float(value)
                dataset[tuple(int(random.integers(n)) for n in dataset.shape)] = value
        if random.random() < 0.3:
            group = file[names[random.integers(len(names))]].parent
            if len(group.attrs):
                name = list(group.attrs)[random.integers(len(group.attrs))]
                group.attrs[name] = [VALUES[random.integers(10)], "text", -1.5, [1, 2]][random.integers(4)]


def change_text(path, random, numbers=VALUES):
    """A number, a word, a line or a few bytes of a text. numbers: that take the place of others."""
    text, choice = path.read_text(encoding="utf-8", errors="replace"), random.random()
    places = list(re.finditer(r"0x[0-9a-f]+|-?\d+(\.\d+)?", text))
    if choice < 0.5 and places:
        found = places[random.integers(len(places))]
        values = [*map(str, numbers), *WORDS]
        text = text[: found.start()] + values[random.integers(len(values))] + text[found.end() :]
    elif choice < 0.75:
        lines = text.split("\n")
        one, other = random.integers(0, len(lines), 2)
        lines[one] = lines[other] if random.random() < 0.7 else ""
        text = "\n".join(lines)
    path.write_text(text, encoding="utf-8", errors="replace")
    if choice >= 0.75:
        flip_bytes(path, random)


def change_form(path, random):
    """A dataset gets another type, rank or length, or is missing; the seal is renewed."""
    with changed_archive(path) as file:
        names = []
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        name = names[random.integers(len(names))]
        values = file[name][()] if file[name].dtype.kind in "iu" else np.arange(4)
        del file[name]
        forms = (values.astype(np.float64) * np.nan, values.reshape(1, -1), values[:-1] if values.ndim else values,
                 np.repeat(values, 2), np.int64(3), "text", values.astype(np.int8), np.zeros((0, 3)))  # fmt: skip
        choice = random.integers(len(forms) + 1)
        if choice < len(forms):
            file[name] = forms[choice]


def change_json(path, random):
    """A value in a JSON text of a dataset or attribute; the seal is renewed."""
    with changed_archive(path) as file:
        places = [(file.attrs, name) for name in file.attrs]

        def add(name, found):
            if isinstance(found, h5py.Dataset) and found.dtype.kind == "O" and found.shape == ():
                places.append((file, name))
            places.extend((found.attrs, attribute) for attribute in found.attrs)

        file.visititems(add)
        for _ in range(200):
            holder, name = places[random.integers(len(places))]
            text = holder[name][()] if holder is file else holder[name]
            text = text.decode() if isinstance(text, bytes) else text
            if isinstance(text, str) and text.startswith(("{", "[")):
                content = changed_json(json.loads(text), random)
                if holder is file:
                    del file[name]
                holder[name] = json.dumps(content)
                return


def changed_json(content, random):
    """The content with one value replaced, doubled or gone, at any depth."""
    if isinstance(content, dict) and content and random.random() < 0.9:
        key = list(content)[random.integers(len(content))]
        if random.random() < 0.15:
            return {name: value for name, value in content.items() if name != key}
        return content | {key: changed_json(content[key], random)}
    if isinstance(content, list) and content and random.random() < 0.9:
        place = random.integers(len(content))
        return [*content[:place], changed_json(content[place], random), *content[place:]]
    return JSON_VALUES[random.integers(len(JSON_VALUES))]


def change_json_text(path, random):
    """One value of a JSON file replaced, doubled or gone."""
    path.write_text(json.dumps(changed_json(json.loads(path.read_text()), random)))


def make_targets(folder):
    """Good inputs of every kind in folders of the folder."""
    preset = load_preset("t3_2024", SMALL)
    return [
        *_traces(folder / "traces"),
        *_results(folder / "results", preset),
        *_texts(folder / "texts"),
        *_settings(folder / "settings", folder / "results" / "result.h5"),
        *_stored(folder / "store"),
    ]


def _traces(folder):
    folder.mkdir()
    trace = folder / "trace.h5"
    write_archive(trace, ListSource([Prefill(1 << 20, 4096), ordinary_kernel()]))
    verbs = (("trace", "info", "IN"), ("trace", "verify", "IN"), ("run", "IN", "--preset", "t3_2024"),
             ("trace", "export", "IN", "-o", "OUT"))  # fmt: skip
    old = folder / "old.h5"
    shutil.copy(ROOT / "tests" / "traces" / "archives" / "trace_v1.h5", old)
    return [
        Target("trace bytes", trace, flip_bytes, verbs),
        Target("trace values", trace, change_values, verbs),
        Target("trace forms", trace, change_form, verbs),
        Target("old trace bytes", old, flip_bytes, verbs),
    ]


def _results(folder, preset):
    folder.mkdir()
    result, scenario, old = folder / "result.h5", folder / "scenario.h5", folder / "old.h5"
    with open_archive(folder.parent / "traces" / "trace.h5") as source:
        write_results(result, simulate(source, preset, interval_ps=1_000_000))
    case = Scenario(preset, aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2, interval_ps=1_000_000)
    write_scenario(scenario, simulate_scenario(case))
    shutil.copy(ROOT / "tests" / "sim" / "results" / "archives" / "results_v1.h5", old)
    verbs = (
        ("show", "IN"), ("show", "IN", "--json"), ("show", "IN", "--run", "0"),
        ("show", "IN", "--run", "1", "--unit", "hbm"), ("show", "IN", "--energy", "hbm2_12nm"),
        ("show", "IN", "--names", "nsight"), ("diff", "IN", str(result)), ("diff", str(scenario), "IN"),
        ("merge", "IN", str(result), "-o", "OUT.h5"), ("timeline", "IN", "-o", "OUT.html"),
        *(("plot", kind, "IN", "-o", "OUT.png") for kind in ("traffic", "queue", "rates", "roofline", "study")),
        ("plot", "speedups", "IN", "--table"),
    )  # fmt: skip
    files = {"result": result, "scenario": scenario, "old result": old}
    changes = {"bytes": flip_bytes, "values": change_values, "forms": change_form, "texts": change_json}
    return [
        Target(f"{name} {how}", file, change, verbs) for name, file in files.items() for how, change in changes.items()
    ]


def _texts(folder):
    folder.mkdir()
    with open_archive(folder.parent / "traces" / "trace.h5") as source:
        export_accelsim(source, folder)
    stream, binaries = folder / "stream.trace", ROOT / "tests" / "tracer" / "elf" / "binaries"
    stream.write_text("".join(f"{'RWU'[k % 3]} 0x{64 * k:x} {k}\n" for k in range(40)))
    verbs = (("trace", "import", "IN", "-o", "OUT.h5"), ("trace", "import", "IN", "-o", "OUT.h5", "--lenient"),
             ("run", "IN", "--preset", "v100"))  # fmt: skip
    found = [
        Target("list", folder / "kernelslist.g", change_text, verbs),
        Target("text", next(folder.glob("kernel-1*")), change_text, verbs),
        Target("stream", stream, change_text, (("dram", "IN"), ("dram", "IN", "--nmc-updates", "--json"))),
    ]
    for name in ("kernels_sm90.cubin", "kernels_gfx90a.co", "wide.fatbin", "host_hip_zstd.o"):
        shutil.copy(binaries / name, folder)
        found.append(Target(name, folder / name, flip_bytes, (("elf", "info", "IN"), ("elf", "info", "IN", "--json"))))
    return found


def _settings(folder, result):
    folder.mkdir()
    few = partial(change_text, numbers=range(-2, 70))
    texts = {
        "study.toml": 'run = "kernel"\npreset = "t3_2024"\nkernel = "gemm:m=64,n=64,k=32"\n[set]\n"cu.count" = 4\n'
        '[[points]]\n"l2.mshrs" = 64\n[[points]]\n"l2.mshrs" = 128\n"hbm.index" = "hash"\n',
        "plan.py": PLAN,
        "gemm.txt": "128x64x32",
        "kernel.txt": "gemm:m=64,n=64,k=32,tile=64x64x32,warps=2x2",
        "set.txt": "hbm.index=hash",
        "chunks.txt": "1,1",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    shutil.copy(ROOT / "sim" / "presets" / "v100.toml", folder / "machine.toml")
    shutil.copy(ROOT / "sim" / "presets" / "energy" / "hbm2_12nm.toml", folder / "energy.toml")
    write_profile(folder / "profile.json", layer(), gpus=4)
    t3 = ("t3", "--kernel", "gemm:m=256,n=128,k=32", "--gpus", "2", "--configuration", "T3")
    verbs = {
        "machine.toml": (change_text, (("presets", "IN"), ("run", "--gemm", "64x64x32", "--preset", "IN"))),
        "energy.toml": (change_text, (("show", str(result), "--energy", "IN"),)),
        "study.toml": (few, (("study", "IN", "-o", "OUT", "--workers", "0"), ("study", "IN", "--list"))),
        "plan.py": (few, ((*t3, "--plan", "IN"),)),
        "gemm.txt": (few, (("run", "--gemm", "TEXT"),)),
        "kernel.txt": (few, (("run", "--kernel", "TEXT"), ("trace", "make", "TEXT", "-o", "OUT.h5"))),
        "set.txt": (change_text, (("run", "--gemm", "64x64x32", "--set", "TEXT"),)),
        "profile.json": (change_json_text, (("profile", "IN", "--no-overlap"), ("profile", "IN", "--json"))),
        "chunks.txt": (change_text, ((*t3, "--chunks", "TEXT"),)),
    }
    return [Target(name, folder / name, damage, words) for name, (damage, words) in verbs.items()]


def _stored(folder):
    """A result and an interrupted run in a store."""
    store = Store(folder)
    done, unfinished = (gemm_run(load_preset("v100"), make_kernel(text)) for text in (STORED, UNFINISHED))
    run_or_get(done, store)
    checkpoint = Interrupted(store.path(unfinished.key, STATE), 1, unfinished.key)
    with suppress(PulledPlug):
        unfinished.execute(save_points=checkpoint.save_points())
    verbs = (("store", "list"), ("store", "check"), ("run", "--kernel", STORED))
    resumed = (("run", "--kernel", UNFINISHED, "--checkpoint", "1000"), ("store", "list"))
    return [
        Target("entry bytes", store.path(done.key), flip_bytes, verbs, True),
        Target("entry texts", store.path(done.key), change_json, verbs, True),
        Target("checkpoint bytes", store.path(unfinished.key, STATE), flip_bytes, resumed, True),
    ]
