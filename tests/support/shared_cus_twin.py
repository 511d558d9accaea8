"""Naive twin of kernels on shared CUs, one workgroup on a CU: a list of what is on each CU, looked at time by time."""

from typing import NamedTuple


class Job(NamedTuple):
    """A kernel: `workgroups` that take `time_ps` each."""

    workgroups: int
    time_ps: int
    start_ps: int = 0
    keeps: int = 0


def run(jobs, cus, in_turn, lookahead_ps, interval_ps):
    """Starts of all workgroups of each job as (time, CU), and the times at which its kept places were taken."""
    starts, taken = [[] for _ in jobs], [[] for _ in jobs]
    next_ps = [job.start_ps for job in jobs]
    busy = [(-1, 0)] * cus  # job that has the CU, and when its workgroup's place is seen to be free
    history, now_ps = [], 0

    def done(k):
        return len(starts[k]) == jobs[k].workgroups and now_ps >= next_ps[k]

    def waits(k):
        kept = [jobs[j].keeps > 0 and len(taken[j]) == jobs[j].keeps for j in range(k)]
        return not in_turn and not all(done(j) or kept[j] for j in range(k))

    def place_of(k):
        """(CU, keeps): the next place of a job, None if it can have none."""
        if now_ps < next_ps[k] or len(starts[k]) == jobs[k].workgroups or waits(k):
            return None
        empty = [c for c, (job, _) in enumerate(busy) if job < 0]
        if len(taken[k]) < jobs[k].keeps and empty:
            return empty[0], True
        if jobs[k].keeps:
            empty = [c for c, (job, free_ps) in enumerate(busy) if job == k and free_ps <= now_ps]
        return (empty[0], False) if empty else None

    while True:
        for c, (job, free_ps) in enumerate(busy):
            if job >= 0 and free_ps <= now_ps and (jobs[job].keeps == 0 or done(job)):
                busy[c] = (-1, 0)
        able = [k for k in range(len(jobs)) if place_of(k)]
        if able:
            last = {k: max((n for n, job in enumerate(history) if job == k), default=-1) for k in able}
            k = min(able, key=lambda job: (last[job], job)) if in_turn else able[0]
            c, keeps = place_of(k)
            busy[c] = (k, now_ps if keeps else now_ps + jobs[k].time_ps + lookahead_ps)
            (taken if keeps else starts)[k].append((now_ps, c))
            if keeps or not jobs[k].keeps:
                history.append(k)
            next_ps[k] = now_ps + interval_ps
        else:
            later = [t for t in (*next_ps, *(free_ps for _, free_ps in busy)) if t > now_ps]
            if not later:
                return starts, taken
            now_ps = min(later)
