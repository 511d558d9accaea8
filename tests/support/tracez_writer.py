"""A .tracez file as Accel-Sim's post-processing writes it, and the text that its traceDsm gives back."""

import struct

import zstandard

CLUSTER = (0,) * 7
"""Cluster id, place in the cluster and rank of a block outside clusters."""


def trained(lines):
    """A dictionary from sample lines."""
    return zstandard.train_dictionary(1 << 12, [line.encode() for line in lines] * 100)


def tracez(header, blocks, dictionary=None, chunk_lines=2, tails=None):
    """Bytes of the container.

    Args:
        header: text of the header, with the `#traces format` line.
        blocks: for each thread block (x, y, z) and a list of lines for each warp.
        dictionary: zstandard.ZstdCompressionDict or None.
        tails: of each thread block its cluster (3 numbers), its place in it (3) and rank; None = outside clusters.
    """
    packer = zstandard.ZstdCompressor(level=3, dict_data=dictionary)
    words = dictionary.as_bytes() if dictionary else b""
    data = header.encode() + b"\0" + struct.pack("<II", len(words), chunk_lines) + words
    index = struct.pack("<I", len(blocks))
    for number, (place, warps) in enumerate(blocks):
        index += struct.pack("<11I", *place, *(tails[number] if tails else CLUSTER), len(warps))
        for lines in warps:
            chunks = [lines[k : k + chunk_lines] for k in range(0, len(lines), chunk_lines)]
            index += struct.pack("<IIQ", len(lines), len(chunks), len(data))
            data += struct.pack("<II", len(lines), len(chunks))
            for chunk in chunks:
                frame = packer.compress("\n".join(chunk).encode())
                data += struct.pack("<I", len(frame)) + frame
                index += struct.pack("<I", len(chunk))
    return data + index + struct.pack("<Q", len(data))


def traceg(header, blocks):
    """The same trace as text."""
    text = header
    for (x, y, z), warps in blocks:
        text += f"\n#BEGIN_TB\n\nthread block = {x},{y},{z}\n"
        text += "cluster id = 0,0,0\ncluster cta = 0,0,0\ncluster rank = 0\n"
        for number, lines in enumerate(warps):
            text += f"\nwarp = {number}\ninsts = {len(lines)}\n" + "".join(f"{line}\n" for line in lines)
        text += "\n#END_TB\n"
    return text
