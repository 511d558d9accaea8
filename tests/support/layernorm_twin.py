"""What each warp of a layer normalisation touches, from the text of `tracer.operators.layernorm`."""

ROW_PIECES, KEPT_PIECES, UNROLL, REGION_BYTES = 8, 8, 4, 2 << 20


class NaiveLayerNorm:
    """Lists (kind, first byte, bytes) of the accesses of a warp, in order."""

    def __init__(self, rows, cols, element_bytes, *, warps=8, lanes=32, stats=False, address=1 << 36):
        self.rows, self.cols, self.element_bytes, self.warps, self.stats = rows, cols, element_bytes, warps, stats
        vector = max(v for v in (1, 2, 4, 8, 16) if cols % v == 0 and v * element_bytes <= 16)
        elements = [*range(cols)]
        self.pieces = [elements[at : at + lanes * vector] for at in range(0, cols, lanes * vector)]
        self.alone = len(self.pieces) <= ROW_PIECES
        longest = len(self.pieces) if self.alone else len(self.pieces[0::warps])
        self.kept = longest <= KEPT_PIECES
        sizes = {"x": rows * cols, "y": rows * cols, "weight": cols, "bias": cols}
        self.start = {}
        for name, size in sizes.items():
            self.start[name] = address
            address = -(-(address + size * element_bytes) // REGION_BYTES) * REGION_BYTES
        for name in ("mean", "deviation"):
            self.start[name] = address
            address = -(-(address + rows * 4) // REGION_BYTES) * REGION_BYTES

    def row_of(self, workgroup, warp):
        """The row that a warp works on, or None."""
        row = workgroup * self.warps + warp if self.alone else workgroup
        return row if row < self.rows else None

    def accesses(self, workgroup, warp):
        row = self.row_of(workgroup, warp)
        if row is None:
            return []
        mine = self.pieces if self.alone else self.pieces[warp :: self.warps]
        found = [self._access("load", "x", row, piece) for piece in mine]
        for at in range(0, len(mine), UNROLL):
            group = mine[at : at + UNROLL]
            for buffer in ("weight", "bias"):
                found += [self._access("load", buffer, 0, piece) for piece in group]
            if not self.kept:
                found += [self._access("load", "x", row, piece) for piece in group]
            found += [self._access("store", "y", row, piece) for piece in group]
        if self.stats and (self.alone or warp == 0):
            found += [("store", self.start[name] + 4 * row, 4) for name in ("mean", "deviation")]
        return found

    def _access(self, kind, buffer, row, piece):
        first = self.start[buffer] + (row * self.cols + piece[0]) * self.element_bytes
        return kind, first, len(piece) * self.element_bytes
