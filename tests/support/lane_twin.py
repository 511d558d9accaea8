"""Lane addresses of one event, straight from the text of `traces.schema`."""

from traces.schema import EXPLICIT

WORD = 1 << 64


def lane_addresses(event, addresses):
    """Byte addresses of the active lanes, in lane order."""
    inner, base = int(event["inner"]), int(event["base"])
    lanes = int(event["mask"]).bit_count()
    if inner == EXPLICIT:
        return [int(addresses[base + k]) for k in range(lanes)]
    stride, row_stride = int(event["stride"]), int(event["row_stride"])
    return [(base + (k % inner) * stride + (k // inner) * row_stride) % WORD for k in range(lanes)]
