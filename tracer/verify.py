"""Read and check a whole trace archive: its checksums, and that every workgroup can be simulated."""

import os

import numpy as np

from tracer.workgroup_check import checked_workgroups
from traces.archive import ArchiveKernel, open_archive
from traces.checksum import KernelHash
from traces.errors import UserError
from traces.layout import CHUNK_ROWS, KERNEL_DATASETS, dimension_sizes
from traces.source import Prefill
from traces.write import Progress, Summary


def verify_archive(path: str | os.PathLike[str], progress: Progress | None = None) -> Summary:
    """Read everything in an archive, compare its checksums and check that its values are possible.

    Args:
        progress: called after each workgroup, as by `write_archive`.

    Raises:
        UserError: as `open_archive`, or a checksum differs, or a value is impossible.
    """
    with open_archive(path) as archive:
        summary = Summary(kernels=len(archive.kernels), file_bytes=archive.path.stat().st_size)
        for number, kernel in enumerate(archive.kernels):
            checksum = _hash_kernel(kernel)
            if checksum != kernel.checksum:
                raise UserError(
                    f"{path}: kernel {number}: checksum mismatch: content {checksum}, stored {kernel.checksum}"
                )
            for done, workgroup in enumerate(checked_workgroups(kernel), 1):
                if progress is not None:
                    progress(number, kernel.info, done)
                summary.instructions += int(workgroup.events["count"].sum(dtype=np.int64))
            summary.workgroups += kernel.info.workgroups
            summary.warps += kernel.warps
            summary.events += kernel.events
            summary.addresses += kernel.explicit_addresses
        if archive.content_checksum() != archive.checksum:
            raise UserError(f"{path}: checksum mismatch: the commands or kernel checksums differ from the file's")
        summary.prefills = sum(isinstance(command, Prefill) for command in archive.commands())
        summary.checksum = archive.checksum
    return summary


def _hash_kernel(kernel: ArchiveKernel) -> str:
    digest = KernelHash()
    sizes = dimension_sizes(kernel.info.workgroups, kernel.warps, kernel.events, kernel.explicit_addresses)
    for name, entry in KERNEL_DATASETS.items():
        for start in range(0, sizes[entry.dimension], CHUNK_ROWS):
            digest.update(name, kernel.read_column(name, start, start + CHUNK_ROWS))
    return digest.digest(kernel.info)
