"""Naive twin of the Tracker: sets of tiles, walked again for every question."""


class TrackerTwin:
    """
    Args:
        walk: tiles in the order in which workgroups make them.
        thresholds: bytes of updates of each tile until its trigger, 0 = not tracked.
    """

    def __init__(self, walk, thresholds, *, entries, ways):
        self.walk, self.thresholds = list(walk), list(thresholds)
        self.entries, self.ways, self.sets = entries, ways, max(1, entries // ways)
        self.begun, self.counted, self.triggered = set(), dict.fromkeys(walk, 0), []

    def grant(self, tile):
        if self.thresholds[tile] == 0 or tile in self.begun:
            return True
        if self.entries:
            same_set = [other for other in self.walk if other % self.sets == tile % self.sets]
            held = [other for other in same_set if other in self.begun and other not in self.triggered]
            earlier = [
                other
                for other in same_set
                if self.walk.index(other) < self.walk.index(tile)
                and self.thresholds[other] > 0
                and other not in self.begun
            ]
            if self.ways - len(held) - len(earlier) <= 0:
                return False
        self.begun.add(tile)
        return True

    def count(self, tile, volume):
        self.counted[tile] += volume
        if self.thresholds[tile] and tile not in self.triggered and self.counted[tile] >= self.thresholds[tile]:
            self.triggered.append(tile)

    @property
    def live(self):
        return sum(1 for t in self.walk if self.counted[t] and self.thresholds[t] and t not in self.triggered)
