"""Make the archives of traces/small from the Accel-Sim texts in this repository.

python -m tracer.accelsim.make_small
"""

from pathlib import Path

from tracer.accelsim.reader import open_accelsim
from traces.command.script import without_options
from traces.write import write_archive

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "copy_512KiB.h5": "copy_512KiB_sm70",
    "gemm_512x512x256.h5": "gemm_512x512x256_sm70",
}
"""Archive -> folder of validation/references/accelsim_traces."""


def make(folder: Path) -> None:
    """Import every text into an archive in `folder`."""
    for archive, text in SMALL.items():
        source = open_accelsim(ROOT / "validation" / "references" / "accelsim_traces" / text)
        summary = write_archive(folder / archive, source)
        print(f"{archive}: {summary.events} events, {summary.file_bytes} bytes, {summary.checksum}")


if __name__ == "__main__":
    without_options(__doc__)
    make(ROOT / "traces" / "small")
