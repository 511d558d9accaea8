"""Read numbers and strings from a section, one after the other."""


class Cursor:
    """A position in bytes that stays in `[0, end)`.

    Every method raises ValueError if the data ends too early.
    """

    def __init__(self, data: bytes, at: int = 0, end: int | None = None):
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def part(self, at: int, end: int) -> "Cursor":
        """Another cursor on [at, end) of the same bytes."""
        return Cursor(self.data, at, end)

    def skip(self, count: int) -> None:
        if self.at + count > self.end:
            raise ValueError(f"data ends at byte {self.end}, {count} more were expected at byte {self.at}")
        self.at += count

    def unsigned(self, count: int) -> int:
        """Little-endian number of `count` bytes."""
        self.skip(count)
        return int.from_bytes(self.data[self.at - count : self.at], "little")

    def signed_byte(self) -> int:
        value = self.unsigned(1)
        return value - 256 if value > 127 else value

    def uleb(self) -> int:
        """Unsigned LEB128 of at most 64 bits."""
        value, shift = 0, 0
        while True:
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 63:
                raise ValueError(f"LEB128 number at byte {self.at} has more than 64 bits")

    def sleb(self) -> int:
        """Signed LEB128 of at most 64 bits."""
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def string(self) -> str:
        """Zero-terminated string."""
        stop = self.data.find(0, self.at, self.end)
        if stop < 0:
            raise ValueError(f"string at byte {self.at} has no end")
        value = self.data[self.at : stop].decode("utf-8", "replace")
        self.at = stop + 1
        return value
