"""Naive twin of the Tracker: sets of tiles and of their wavefronts, walked again for every question."""


class TrackerTwin:
    """
    Args:
        walk: tiles in the order in which workgroups make them.
        thresholds: bytes of updates of each tile's wavefronts until their triggers, a list per tile; all 0 = not
            tracked.
        by_wavefront: the part of each wavefront is sent on by itself.
    """

    def __init__(self, walk, thresholds, *, entries, ways, by_wavefront=False):
        self.walk, self.thresholds = list(walk), list(thresholds)
        self.entries, self.ways, self.sets = entries, ways, max(1, entries // ways)
        self.by_wavefront = by_wavefront
        self.begun, self.counted, self.sent = set(), {}, []

    def tracked(self, tile):
        return any(self.thresholds[tile])

    def grant(self, tile):
        if not self.tracked(tile) or tile in self.begun:
            return True
        if self.entries:
            same_set = [other for other in self.walk if other % self.sets == tile % self.sets]
            held = [other for other in same_set if other in self.begun and not self.complete(other)]
            earlier = [
                other
                for other in same_set
                if self.walk.index(other) < self.walk.index(tile) and self.tracked(other) and other not in self.begun
            ]
            if self.ways - len(held) - len(earlier) <= 0:
                return False
        self.begun.add(tile)
        return True

    def count(self, tile, wavefront, volume):
        was, tile_was = self.full(tile, wavefront), self.complete(tile)
        self.counted[tile, wavefront] = self.counted.get((tile, wavefront), 0) + volume
        if not self.tracked(tile):
            return
        if self.by_wavefront and self.full(tile, wavefront) and not was:
            self.sent.append((tile, wavefront))
        if not self.by_wavefront and self.complete(tile) and not tile_was:
            self.sent.append((tile, -1))

    def full(self, tile, wavefront):
        return self.counted.get((tile, wavefront), 0) >= self.thresholds[tile][wavefront]

    def complete(self, tile):
        return all(self.full(tile, wavefront) for wavefront in range(len(self.thresholds[tile])))

    @property
    def live(self):
        some = {tile for (tile, _), volume in self.counted.items() if volume}
        return sum(1 for tile in some if self.tracked(tile) and not self.complete(tile))
