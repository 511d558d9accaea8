"""Naive twin of the switch's adders: a dictionary of the parts that have come."""


def switch_twin(parts, gpus):
    """What comes out, in order: (key, contributors). parts: (key, contributors) in the order in which they come."""
    waiting = {}
    for key, contributors in parts:
        come = [*waiting.pop(key, []), contributors]
        if len(come) < gpus:
            waiting[key] = come
            continue
        total = 0
        for one in come:
            total |= one
        yield key, total
