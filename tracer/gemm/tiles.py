"""The events of one workgroup of a tiled GEMM, written warp by warp.

Program of one warp for one output tile:

1. Load the data of the first K-steps.
2. For every K-step: store its data to shared memory, wait at a barrier, load the data of the step `depth - 1` ahead,
   read operand fragments from shared memory, issue tensor instructions.
3. Epilogue.

The instructions that find the addresses of loads stand between matrix instructions and take issue slots there. Before
the first step, and beside the stores, they take the integer pipe (D60).

Loads of a step share the slot `step % depth`; the step that needs them waits for it. If a K-step has several pieces,
the fragments of the next piece are read before the tensor instructions of the current one, also across the barrier.

With bulk copies the first warp loads the whole tiles of a step, or one more warp that does nothing else (producer). Two
transaction barriers of each stage take the place of the workgroup's barrier: one for the data, one for the warps that
have read them. A producer copies the tiles of the next steps as soon as their stage is free, also of the next tile.

Workgroups of a cluster of m x n tiles need the same rows of A if their tiles are in one row of tiles, and the same
columns of B if they are in one column. Each loads an equal part of them for all (multicast). It tells its barrier how
many bytes the others bring. Warps that have read a stage tell all workgroups that load into it. Workgroups of a pair
leave each other's part of what they share where it is. They do not wait for it: it comes at the same time (D64).

The writers append at index `at` and return the next index. If the array is full, they overwrite its last element and
continue to count. So one call gives the size that the array needs.
"""

import numpy as np

from tracer.compile.jit import compiled
from tracer.events import put
from tracer.gemm.plan import Slot
from tracer.gemm.raster import tile_at
from tracer.gemm.rectangles import RECTANGLE, cut_rectangle, write_accesses
from traces.schema import NO_SLOT

ACCUMULATORS = int(Slot.ACCUMULATORS)
FRAGMENTS = int(Slot.FRAGMENTS)
NEXT_FRAGMENTS = int(Slot.NEXT_FRAGMENTS)
NOTHING = np.uint64(0)
ONE = np.uint64(1)


@compiled(allocates=True)
def write_workgroup(plans, index, events, first_event):
    """Write all events of workgroup `index`.

    Args:
        plans: PLAN[1]; its templates are changed.
        index: linear workgroup id.
        events: EVENT[:], at least one element.
        first_event: i8[warps + 1], receives the first event of each warp, and the end.

    Returns:
        Number of events. If it exceeds events.size, call again with an array of that size.
    """
    plan = plans[0]
    rectangle = np.zeros(1, RECTANGLE)[0]
    at = 0
    warps = plan.warps_m * plan.warps_n + plan.producer
    for warp in range(warps):
        first_event[warp] = at
        at = write_warp(plan, rectangle, index, warp, events, at)
    first_event[warps] = at
    return at


@compiled
def write_warp(plan, rectangle, index, warp, events, at):
    """Write all tiles of the workgroup: one, or every `workgroups`-th tile if workgroups are persistent."""
    tiles = plan.tiles_m * plan.tiles_n
    at = put(events, at, plan.setup, NOTHING, NO_SLOT)
    if plan.cluster_m * plan.cluster_n > 1:
        at = put(events, at, plan.cluster_here, NOTHING, 0)
        at = put(events, at, plan.cluster_all, NOTHING, 0)
    produces = warp == plan.warps_m * plan.warps_n
    done = 0
    for item in range(index, tiles * plan.split_k, plan.workgroups):
        if item > index and not plan.producer:  # shared memory is reused
            at = put(events, at, plan.reuse_barrier, NOTHING, 0)
        split = item // tiles
        position = (item - split * tiles + plan.start_tile) % tiles
        tile_row, tile_column = tile_at(
            position, plan.order, plan.group, plan.tiles_m, plan.tiles_n, plan.cluster_m, plan.cluster_n
        )
        row, column = tile_row * plan.tile_m, tile_column * plan.tile_n
        first, end = plan.steps * split // plan.split_k, plan.steps * (split + 1) // plan.split_k
        plan.before = done - first
        of_a, of_b, _, _ = sharers(plan, row, column)
        plan.readers = of_a | of_b
        done += end - first
        if produces:
            for step in range(first, end):
                at = write_bulk_loads(plan, rectangle, row, column, step, events, at)
            continue
        if plan.pieces > 1:
            at = write_pipelined_loop(plan, rectangle, row, column, first, end, warp, events, at)
        else:
            at = write_main_loop(plan, rectangle, row, column, first, end, warp, events, at)
        at = write_epilogue(plan, rectangle, row, column, plan.with_c and split == 0, warp, events, at)
    return put(events, at, plan.exit, NOTHING, plan.exit.slot)


@compiled
def write_main_loop(plan, rectangle, row, column, first, end, warp, events, at):
    """Write K-steps first .. end - 1 of the tile whose first element is C(row, column)."""
    ahead = plan.depth - 1
    at = write_first_loads(plan, rectangle, row, column, first, end, warp, events, at)
    for step in range(first, end):
        loads = 0
        if plan.single and step > first:  # the only stage of shared memory is reused
            at = put(events, at, plan.reuse_barrier, NOTHING, 0)
        if ahead == 0:
            before = at
            at = write_loads(plan, rectangle, row, column, step, 0, 1, warp, events, at)
            loads = at - before
        at = write_stage(plan, step, events, at)
        if ahead > 0 and step + ahead < end:
            before = at
            at = write_loads(plan, rectangle, row, column, step + ahead, 0, 1, warp, events, at)
            loads = at - before
        at = put(events, at, plan.fragments, plan.fragments.wait, plan.fragments.slot)
        at = put(events, at, plan.tensor, plan.tensor.wait, ACCUMULATORS if step == end - 1 else NO_SLOT)
        count_addresses(plan, events, at - 1, loads)
        at = release_stage(plan, step, events, at)
    return at


@compiled
def write_pipelined_loop(plan, rectangle, row, column, first, end, warp, events, at):
    """Write K-steps as in `write_main_loop`, each in several pieces.

    The loads of the step `depth - 1` ahead are divided into portions. One portion follows the arithmetic of each piece
    except the last. The arithmetic of the last piece follows the barrier of the next step.
    """
    ahead, portions = plan.depth - 1, plan.pieces - 1
    at = write_first_loads(plan, rectangle, row, column, first, end, warp, events, at)
    at = write_stage(plan, first, events, at)
    at = put(events, at, plan.fragments, NOTHING, FRAGMENTS)
    slot, following = FRAGMENTS, NEXT_FRAGMENTS
    for step in range(first, end):
        for piece in range(plan.pieces):
            last = piece == portions
            arrived = ONE << np.uint64(slot)
            if last and step + 1 < end:
                if plan.single:  # all warps have read the last piece
                    at = put(events, at, plan.reuse_barrier, arrived, 0)
                at = write_stage(plan, step + 1, events, at)
            if not last or step + 1 < end:
                at = put(events, at, plan.fragments, NOTHING, following)
            at = put(events, at, plan.tensor, arrived, ACCUMULATORS if last and step == end - 1 else NO_SLOT)
            if last:
                at = release_stage(plan, step, events, at)
            elif step + ahead < end:
                before = at
                at = write_loads(plan, rectangle, row, column, step + ahead, piece, portions, warp, events, at)
                count_addresses(plan, events, before - 1, at - before)
            slot, following = following, slot
    return at


@compiled
def write_first_loads(plan, rectangle, row, column, first, end, warp, events, at):
    """Write the loads of the first steps, and the instructions beside them."""
    for step in range(first, min(first + plan.depth - 1, end)):
        before = at
        at = write_loads(plan, rectangle, row, column, step, 0, 1, warp, events, at)
        at = put_addresses(plan, events, at, plan.load_access * (at - before))
    return at


@compiled
def count_addresses(plan, events, at, loads):
    """Add the instructions that find the addresses of `loads` accesses to those of the event at index `at`."""
    events[min(at, events.size - 1)].count += plan.load_access * loads


@compiled
def write_stage(plan, step, events, at):
    """Write the wait for the data of a step, and the barrier after which all warps can read them."""
    if plan.bulk:
        return put_phase(events, at, plan.await_data, plan.before + step, plan.depth, 0, 1)
    arrived = ONE << np.uint64(step % plan.depth)
    if plan.through_registers:
        at = put(events, at, plan.share, arrived, NO_SLOT)
        arrived = NOTHING
    return put(events, at, plan.stage_barrier, arrived, 0)


@compiled
def put_phase(events, at, template, number, depth, first, phases):
    """Append a wait at the transaction barrier of the stage of K-step `number`, counted over the workgroup.

    Args:
        first: barrier of stage 0. phases: to wait for, more than those of earlier uses of the stage.
    """
    template.work = number // depth + phases
    return put(events, at, template, NOTHING, first + number % depth)


@compiled
def release_stage(plan, step, events, at):
    """Write the arrival that tells that this warp has read the data of a step."""
    if plan.bulk:
        stage = (plan.before + step) % plan.depth
        plan.released.cycles = plan.readers
        return put(events, at, plan.released, NOTHING, plan.depth + stage)
    return at


@compiled
def sharers(plan, row, column):
    """Sets of the workgroups of the cluster that need the rows of A, and the columns of B, of the tile at C(row,
    column); and the tile's own row and column in the cluster. A set of one workgroup is given as 0."""
    own_m, own_n = row // plan.tile_m % plan.cluster_m, column // plan.tile_n % plan.cluster_n
    of_a = of_b = 0
    for other in range(own_n % plan.pair_n, plan.cluster_n if plan.cluster_n > plan.pair_n else 0, plan.pair_n):
        of_a |= 1 << (own_m + other * plan.cluster_m)
    for other in range(own_m % plan.pair_m, plan.cluster_m if plan.cluster_m > plan.pair_m else 0, plan.pair_m):
        of_b |= 1 << (other + own_n * plan.cluster_m)
    return of_a, of_b, own_m, own_n


@compiled
def write_bulk_loads(plan, rectangle, row, column, step, events, at):
    """Write the wait for a free stage, the bulk copies of the tiles of A and B of one K-step, and the arrival."""
    number = plan.before + step
    stage = number % plan.depth
    if number >= plan.depth:
        at = put_phase(events, at, plan.await_stage, number, plan.depth, plan.depth, 0)
    of_a, of_b, own_m, own_n = sharers(plan, row, column)
    expected_bytes, depth_k = 0, step * plan.tile_k
    part_m, part_n = plan.tile_m // plan.cluster_n, plan.tile_n // plan.cluster_m
    for part in range(own_n % plan.pair_n, plan.cluster_n, plan.pair_n):
        cut_rectangle(rectangle, plan.a, row + part * part_m, depth_k, part_m, plan.tile_k, plan.load_bytes)
        if part == own_n:
            at = put_box(events, at, plan.load_a, rectangle, stage, of_a)
        else:
            expected_bytes += rectangle.rows * rectangle.run_bytes
    for part in range(own_m % plan.pair_m, plan.cluster_m, plan.pair_m):
        cut_rectangle(rectangle, plan.b, depth_k, column + part * part_n, plan.tile_k, part_n, plan.load_bytes)
        if part == own_m:
            at = put_box(events, at, plan.load_b, rectangle, stage, of_b)
        else:
            expected_bytes += rectangle.rows * rectangle.run_bytes
    plan.filled.row_stride = expected_bytes
    return put(events, at, plan.filled, NOTHING, stage)


@compiled
def put_box(events, at, template, rectangle, stage, to):
    """Append a bulk copy of what exists of a rectangle, to the transaction barrier and the slot of its stage.

    to: set of the workgroups that get the data, 0 = its own.
    """
    if rectangle.rows == 0 or rectangle.run_bytes == 0:
        return at
    template.base, template.row_stride = rectangle.address, rectangle.pitch_bytes
    template.stride, template.work = rectangle.run_bytes, rectangle.rows
    template.inner, template.mask, template.width_bytes, template.cycles = stage, ONE, 0, to
    return put(events, at, template, NOTHING, stage)


@compiled
def write_loads(plan, rectangle, row, column, step, portion, portions, warp, events, at):
    """Write this warp's loads of the tiles of A and B of one K-step, or a portion of them."""
    if plan.bulk:
        if plan.producer or warp > 0 or portion > 0:
            return at
        return write_bulk_loads(plan, rectangle, row, column, step, events, at)
    depth_k = step * plan.tile_k
    sharers = plan.warps_m * plan.warps_n * portions
    sharer = warp * portions + portion
    plan.load_a.slot = plan.load_b.slot = step % plan.depth
    cut_rectangle(rectangle, plan.a, row, depth_k, plan.tile_m, plan.tile_k, plan.load_bytes)
    at = write_accesses(events, at, plan.load_a, rectangle, plan.lane_bytes, plan.lanes, sharer, sharers)
    cut_rectangle(rectangle, plan.b, depth_k, column, plan.tile_k, plan.tile_n, plan.load_bytes)
    return write_accesses(events, at, plan.load_b, rectangle, plan.lane_bytes, plan.lanes, sharer, sharers)


@compiled
def put_addresses(plan, events, at, instructions):
    """Append instructions that find addresses, if any."""
    if instructions == 0:
        return at
    plan.addresses.count = instructions
    return put(events, at, plan.addresses, NOTHING, NO_SLOT)


@compiled
def write_epilogue(plan, rectangle, row, column, with_c, warp, events, at):
    """Write the stores of the results. `with_c` adds the old C. Staged results pass through shared memory."""
    at = put_addresses(plan, events, at, plan.setup_out)
    if with_c:
        for part in range(plan.passes):
            at = write_output(
                plan, rectangle, plan.source, plan.load_source, plan.load_bytes, row, column, warp, part, events, at
            )
    for part in range(plan.passes if plan.staged else 0):
        at = put(events, at, plan.reuse_barrier, NOTHING, 0)
        at = put(events, at, plan.stage_out, plan.stage_out.wait, NO_SLOT)
        at = put(events, at, plan.stage_barrier, NOTHING, 0)
        at = put(events, at, plan.stage_in, NOTHING, plan.stage_in.slot)
        at = put(events, at, plan.convert, plan.convert.wait, plan.convert.slot)
        at = write_output(plan, rectangle, plan.c, plan.store, plan.store_bytes, row, column, warp, part, events, at)
    if plan.staged:
        return at
    at = put(events, at, plan.convert, plan.convert.wait, plan.convert.slot)
    if plan.boxes:
        if not plan.apart:  # all warps have read the operands, whose place the results take
            at = put(events, at, plan.reuse_barrier, NOTHING, 0)
        at = put(events, at, plan.stage_out, plan.stage_out.wait, plan.stage_out.slot)
        cut_part(plan, rectangle, plan.c, plan.store_bytes, row, column, warp)
        return put_store_box(events, at, plan.store, rectangle)
    return write_output(plan, rectangle, plan.c, plan.store, plan.store_bytes, row, column, warp, 0, events, at)


@compiled
def write_output(plan, rectangle, matrix, access, vector_bytes, row, column, warp, part, events, at):
    """Write this warp's accesses to the output tile: its turns of the whole tile in one pass (staged) or its own
    part."""
    first, sharer, sharers = at, 0, 1
    if plan.staged:
        cut_rectangle(rectangle, matrix, row, column, plan.tile_m, plan.tile_n, vector_bytes)
        warps = plan.warps_m * plan.warps_n
        sharer, sharers = part * warps + warp, plan.passes * warps
    else:
        cut_part(plan, rectangle, matrix, vector_bytes, row, column, warp)
    at = write_accesses(events, at, access, rectangle, 0, plan.lanes, sharer, sharers)
    return put_addresses(plan, events, at, plan.access * (at - first))


@compiled
def cut_part(plan, rectangle, matrix, vector_bytes, row, column, warp):
    """Fill `rectangle` with a warp's own part of the output tile."""
    part_m, part_n = plan.tile_m // plan.warps_m, plan.tile_n // plan.warps_n
    row += warp // plan.warps_n * part_m
    column += warp % plan.warps_n * part_n
    cut_rectangle(rectangle, matrix, row, column, part_m, part_n, vector_bytes)


@compiled
def put_store_box(events, at, template, rectangle):
    """Append a bulk copy that stores what exists of a rectangle."""
    if rectangle.rows == 0 or rectangle.run_bytes == 0:
        return at
    template.base, template.row_stride = rectangle.address, rectangle.pitch_bytes
    template.stride, template.work = rectangle.run_bytes, rectangle.rows
    template.inner, template.mask, template.width_bytes = NO_SLOT, ONE, 0
    return put(events, at, template, template.wait, template.slot)
