"""Decompress members of a binary. The size named in the container is the limit."""

import zlib

import lz4.block
import zstandard

from traces.errors import UserError

MOST_PER_BYTE = {"lz4": 255, "zlib": 1032}  # the formats cannot expand further
LIMIT_BYTES = 1 << 30  # a larger member counts as damage
WINDOW_BYTES = 1 << 27


def decompress(payload: bytes, method: str, size_bytes: int, where: str) -> bytes:
    """The `size_bytes` decompressed bytes of `payload`.

    Args:
        method: none, lz4 (one raw block), zstd (one frame, padding may follow) or zlib.

    Raises:
        UserError: an impossible size, damaged data, or a size other than `size_bytes`.
    """
    if method == "none":
        return payload
    if not 0 < size_bytes <= min(len(payload) * MOST_PER_BYTE.get(method, LIMIT_BYTES), LIMIT_BYTES):
        raise UserError(f"{where}: damaged: {len(payload)} bytes of {method} promise {size_bytes} bytes")
    try:
        if method == "lz4":
            plain = lz4.block.decompress(payload, uncompressed_size=size_bytes)
        elif method == "zlib":
            plain = zlib.decompressobj().decompress(payload, size_bytes)
        else:
            plain = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(payload).read(size_bytes)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, zlib.error) as cause:
        raise UserError(f"{where}: damaged {method} data: {cause}") from cause
    if len(plain) != size_bytes:
        raise UserError(f"{where}: damaged {method} data: {len(plain)} bytes, {size_bytes} promised")
    return plain
