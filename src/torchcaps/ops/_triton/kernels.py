"""The tile loop in Triton: votes of one child after the other, in registers. Importing this needs Triton.

`accumulate` sums over the children of a tile of rows. `spread` goes over the rows of a child and computes gradients. A
row is a position of a sample. README.md has the formulas.
"""

# Triton is an extra, and the language of its kernels is not the Python that a type checker knows.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportCallIssue=false, reportArgumentType=false
# ruff: noqa: N803, N806, SIM109

from __future__ import annotations

import triton
import triton.language as tl

# What `accumulate` computes: sums of votes, gradients of what the logits are made of, the log-sum-exp of the logits of
# every child at every row, or the mean gradient of its coupling there.
SUM, PULL, NORM, GAIN = (tl.constexpr(mode) for mode in range(4))


# fmt: off
@triton.jit
def locate(row, present, origin, positions, cells, GRID: tl.constexpr):
    """Number of the first cell that a row sees: [R]. `origin` has the first cell of each position of a sample."""
    if GRID:
        return row // positions * cells + tl.load(origin + row % positions, mask=present, other=0)
    return row * cells


@triton.jit
def add_offsets(votes, offsets, presence, place, entry, inside, AXES: tl.constexpr, OFFSETS: tl.constexpr):
    """Add the offsets of a place to the first entries of votes [R, J, D]; OFFSETS = 2: times the presence [R]."""
    if OFFSETS > 0:
        shifts = tl.load(offsets + place * AXES + entry, mask=inside & (entry < AXES), other=0.0)  # [D]
        shifts = shifts.to(votes.dtype)[None, None, :]  # [1, 1, D]
        if OFFSETS == 2:
            shifts = presence[:, None, None] * shifts  # [R, 1, D]
        votes += shifts
    return votes


@triton.jit
def softmax(logits, real, norms, background, GLOBAL: tl.constexpr, BACKGROUND: tl.constexpr):
    """Coupling [R, J] of logits [R, J], and the share [R] of the background. GLOBAL: `norms` [R] are given."""
    logits = tl.where(real, logits, float("-inf"))  # [R, J]
    if GLOBAL:
        return tl.exp(logits - norms[:, None]), tl.exp(background - norms)
    top = tl.max(logits, axis=1)  # [R]
    if BACKGROUND:
        top = tl.maximum(top, background)
    raised = tl.exp(logits - top[:, None])  # [R, J]
    total = tl.sum(raised, axis=1)  # [R]
    none = tl.zeros_like(total)  # [R]
    if BACKGROUND:
        none = tl.exp(background - top)  # [R]
        total += none
    return raised / total[:, None], none / total


@triton.jit
def grade(votes, grads, squares, masses, GAUSS: tl.constexpr, WEIGHTED: tl.constexpr):
    """Gradient of the shares [R, J]. GAUSS: votes are distances from the mean, and `squares` belong to their square."""
    if GAUSS:
        return masses + tl.sum(votes * (grads + squares * votes), axis=2)
    if WEIGHTED:
        return masses + tl.sum(votes * grads, axis=2)
    return tl.sum(votes * grads, axis=2)


@triton.jit
def accumulate(
    poses, activations, weight, offsets, origin, shift,
    centre, sharp, level, prior, base, route, background, norm,
    grad, grad_square, grad_mass, gain,
    total, square, mass, unshared, edges,
    rows, positions, cells, types, parents, children, chunk,
    MODE: tl.constexpr, GAUSS: tl.constexpr, KEY: tl.constexpr, PRIOR: tl.constexpr, BASE: tl.constexpr,
    ROUTE: tl.constexpr, WEIGHTED: tl.constexpr, BACKGROUND: tl.constexpr, GLOBAL: tl.constexpr,
    OFFSETS: tl.constexpr, GRID: tl.constexpr, SHARED: tl.constexpr, VOTE_ROWS: tl.constexpr, INNER: tl.constexpr,
    COLUMNS: tl.constexpr, AXES: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_J: tl.constexpr, TILE_V: tl.constexpr,
    TILE_C: tl.constexpr, ACC: tl.constexpr,
):
    """Go over a chunk of children for a tile of rows: votes, coupling, and the sums of `MODE`."""
    D: tl.constexpr = VOTE_ROWS * COLUMNS
    row = tl.program_id(0).to(tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)  # [R]
    parent = tl.arange(0, TILE_J)  # [J]
    vote_row = tl.arange(0, TILE_V * TILE_C) // TILE_C  # [D]
    column = tl.arange(0, TILE_V * TILE_C) % TILE_C  # [D]
    entry = vote_row * COLUMNS + column  # [D]
    present = row < rows  # [R]
    filled = (vote_row < VOTE_ROWS) & (column < COLUMNS)  # [D]
    real = (parent < parents)[None, :]  # [1, J]
    small = (parent < parents)[:, None] & filled[None, :]  # [J, D]
    pair = row[:, None] * parents + parent[None, :]  # [R, J]
    here = present[:, None] & real  # [R, J]
    at = pair[:, :, None] * D + entry[None, None, :]  # [R, J, D]
    inside = present[:, None, None] & small[None, :, :]  # [R, J, D]
    start = locate(row, present, origin, positions, cells, GRID)  # [R]
    if GAUSS or KEY:
        centres = tl.load(centre + at, mask=inside, other=0.0)  # [R, J, D]
    if GAUSS and KEY:
        sharps = tl.load(sharp + at, mask=inside, other=0.0)  # [R, J, D]
        levels = tl.load(level + pair, mask=here, other=0.0)  # [R, J]
    if MODE == PULL or MODE == GAIN:
        grads = tl.load(grad + at, mask=inside, other=0.0)  # [R, J, D]
        squares, masses = grads, tl.zeros([TILE_ROWS, TILE_J], ACC)
        if GAUSS:
            squares = tl.load(grad_square + at, mask=inside, other=0.0)  # [R, J, D]
        if GAUSS or WEIGHTED:
            masses = tl.load(grad_mass + pair, mask=here, other=0.0)  # [R, J]
    none_logit = tl.zeros([], ACC)
    if BACKGROUND:
        none_logit = tl.load(background).to(ACC)
    sums = tl.zeros([TILE_ROWS, TILE_J, TILE_V * TILE_C], ACC)
    square_sums = tl.zeros([TILE_ROWS, TILE_J, TILE_V * TILE_C], ACC)
    mass_sums = tl.zeros([TILE_ROWS, TILE_J], ACC)
    unshared_sums = tl.zeros([TILE_ROWS], ACC)
    first = tl.program_id(1).to(tl.int64) * chunk
    for child in range(first, tl.minimum(first + chunk, children)):
        place = child // types
        step = place
        if GRID:
            step = tl.load(shift + place)
        number = (start + step) * types + child % types  # [R]
        presence = tl.zeros([TILE_ROWS], ACC)
        if WEIGHTED or OFFSETS == 2:
            presence = tl.load(activations + number, mask=present, other=0.0).to(ACC)  # [R]
        matrix = child
        if SHARED:
            matrix = child % types
        votes = tl.zeros([TILE_ROWS, TILE_J, TILE_V * TILE_C], ACC)
        for p in range(INNER):
            if VOTE_ROWS == 1:
                pose = tl.load(poses + number * INNER + p, mask=present, other=0.0).to(ACC)[:, None, None]  # [R, 1, 1]
            else:
                spot = number[:, None] * (VOTE_ROWS * INNER) + (vote_row * INNER + p)[None, :]  # [R, D]
                held = present[:, None] & filled[None, :]  # [R, D]
                pose = tl.load(poses + spot, mask=held, other=0.0).to(ACC)[:, None, :]  # [R, 1, D]
            line = (matrix * parents + parent[:, None]) * INNER + p  # [J, 1]
            factor = tl.load(weight + line * COLUMNS + column[None, :], mask=small, other=0.0).to(ACC)  # [J, D]
            votes += pose * factor[None, :, :]
        votes = add_offsets(votes, offsets, presence, place, entry, filled, AXES, OFFSETS)
        if GAUSS:
            votes -= centres
        logits = tl.zeros([TILE_ROWS, TILE_J], ACC)
        if GAUSS and KEY:
            logits = levels - tl.sum(sharps * votes * votes, axis=2)  # [R, J]
        elif KEY:
            logits = tl.sum(votes * centres, axis=2)  # [R, J]
        if BASE:
            logits += tl.load(base + child * parents + parent, mask=parent < parents, other=0.0).to(ACC)[None, :]
        if ROUTE:
            for s in range(VOTE_ROWS * INNER):
                part = tl.load(poses + number * (VOTE_ROWS * INNER) + s, mask=present, other=0.0).to(ACC)  # [R]
                way = route + (child * parents + parent) * (VOTE_ROWS * INNER) + s  # [J]
                logits += part[:, None] * tl.load(way, mask=parent < parents, other=0.0).to(ACC)[None, :]
        if MODE == NORM:
            logits = tl.where(real, logits, float("-inf"))  # [R, J]
            top = tl.max(logits, axis=1)  # [R]
            found = top + tl.log(tl.sum(tl.exp(logits - top[:, None]), axis=1))  # [R]
            tl.store(edges + row * children + child, found, mask=present)
        else:
            norms = presence
            if GLOBAL:
                norms = tl.load(norm + number, mask=present, other=0.0)  # [R]
            share, none = softmax(logits, real, norms, none_logit, GLOBAL, BACKGROUND)  # [R, J], [R]
            if MODE == SUM:
                if WEIGHTED:
                    share *= presence[:, None]
                if PRIOR:
                    own = tl.load(prior + child * parents + parent, mask=parent < parents, other=0.0).to(ACC)  # [J]
                    share += own[None, :]
            else:
                gains = grade(votes, grads, squares, masses, GAUSS, WEIGHTED)  # [R, J]
                mean = tl.sum(share * gains, axis=1)  # [R]
                if MODE == GAIN:
                    tl.store(edges + row * children + child, mean, mask=present)
                if GLOBAL and MODE == PULL:
                    mean = tl.load(gain + number, mask=present, other=0.0)  # [R]
                share *= gains - mean[:, None]
                if WEIGHTED:
                    share *= presence[:, None]
                    unshared_sums -= presence * none * mean
            if MODE != GAIN:
                share = tl.where(here, share, 0.0)  # [R, J]
                sums += share[:, :, None] * votes
                if GAUSS:
                    square_sums += share[:, :, None] * votes * votes
                mass_sums += share
    if MODE == SUM or MODE == PULL:
        slot = tl.program_id(1).to(tl.int64) * rows * parents
        tl.store(total + slot * D + at, sums, mask=inside)
        if GAUSS:
            tl.store(square + slot * D + at, square_sums, mask=inside)
        if WEIGHTED:
            tl.store(mass + slot + pair, mass_sums, mask=here)
        if GAUSS and BACKGROUND and MODE == PULL:
            tl.store(unshared + tl.program_id(1).to(tl.int64) * rows + row, unshared_sums, mask=present)


@triton.jit
def spread(
    poses, activations, weight, offsets, origin, shift,
    centre, sharp, level, prior, base, route, background, norm,
    grad, grad_square, grad_mass, gain,
    grad_poses, grad_routed, grad_activations, grad_weight, grad_pair, grad_route,
    rows, positions, cells, types, places, parents, children, matrices, group, span,
    ITERS: tl.constexpr, THROUGH: tl.constexpr, GAUSS: tl.constexpr, KEY: tl.constexpr, PRIOR: tl.constexpr,
    BASE: tl.constexpr, ROUTE: tl.constexpr, WEIGHTED: tl.constexpr, BACKGROUND: tl.constexpr, GLOBAL: tl.constexpr,
    OFFSETS: tl.constexpr, GRID: tl.constexpr, SHARED: tl.constexpr, VOTE_ROWS: tl.constexpr, INNER: tl.constexpr,
    COLUMNS: tl.constexpr, AXES: tl.constexpr, TILE_P: tl.constexpr, TILE_S: tl.constexpr, TILE_J: tl.constexpr,
    TILE_V: tl.constexpr, TILE_C: tl.constexpr, ACC: tl.constexpr,
):
    """For the children of a matrix and a span of rows: gradients of their poses, activations and weight."""
    D: tl.constexpr = VOTE_ROWS * COLUMNS
    SIZE: tl.constexpr = VOTE_ROWS * INNER
    inner = tl.arange(0, TILE_P)  # [P]
    spot = tl.arange(0, TILE_S)  # [S]
    parent = tl.arange(0, TILE_J)  # [J]
    vote_row = tl.arange(0, TILE_V * TILE_C) // TILE_C  # [D]
    column = tl.arange(0, TILE_V * TILE_C) % TILE_C  # [D]
    entry = vote_row * COLUMNS + column  # [D]
    filled = (vote_row < VOTE_ROWS) & (column < COLUMNS)  # [D]
    real = (parent < parents)[None, :]  # [1, J]
    small = real[:, :, None] & filled[None, None, :]  # [1, J, D]
    place_in = parent[None, :, None] * D + entry[None, None, :]  # [1, J, D]
    known = (inner < INNER)[:, None, None] & small  # [P, J, D]
    line = parent[None, :, None] * INNER + inner[:, None, None]  # [P, J, 1]
    total = tl.zeros([TILE_P, TILE_J, TILE_V * TILE_C], ACC)
    none_logit = tl.zeros([], ACC)
    if BACKGROUND:
        none_logit = tl.load(background).to(ACC)
    matrix = tl.program_id(0).to(tl.int64) % matrices
    first = tl.program_id(0).to(tl.int64) // matrices * group
    begin = tl.program_id(1).to(tl.int64) * span
    cut = weight + (matrix * parents * INNER + line) * COLUMNS + column[None, None, :]  # [P, J, D]
    factors = tl.load(cut, mask=known, other=0.0).to(ACC)  # [P, J, D]
    last = first + 1
    if SHARED:
        last = tl.minimum(first + group, places)
    for turn in range(first, last):
        child = matrix
        if SHARED:
            child = turn * types + matrix
        place = child // types
        step = place
        if GRID:
            step = tl.load(shift + place)
        pair_sums = tl.zeros([1, TILE_J], ACC)
        if BASE:
            bases = tl.load(base + child * parents + parent, mask=parent < parents, other=0.0).to(ACC)[None, :]
        if PRIOR:
            priors = tl.load(prior + child * parents + parent, mask=parent < parents, other=0.0).to(ACC)[None, :]
        if ROUTE:
            way = (child * parents + parent[:, None]) * SIZE + spot[None, :]  # [J, S]
            routable = (parent < parents)[:, None] & (spot < SIZE)[None, :]  # [J, S]
            routes = tl.load(route + way, mask=routable, other=0.0).to(ACC)  # [J, S]
            route_sums = tl.zeros([TILE_J, TILE_S], ACC)
        for number_of_row in range(begin, tl.minimum(begin + span, rows)):
            row = number_of_row + tl.zeros([1], tl.int64)  # [1]
            start = locate(row, row < rows, origin, positions, cells, GRID)  # [1]
            number = (start + step) * types + child % types  # [1]
            if VOTE_ROWS == 1:
                pose = tl.load(poses + number * INNER + inner, mask=inner < INNER, other=0.0).to(ACC)  # [P]
                pose = pose[:, None, None]  # [P, 1, 1]
            else:
                source = number * SIZE + vote_row[None, :] * INNER + inner[:, None]  # [P, D]
                held = (inner < INNER)[:, None] & filled[None, :]  # [P, D]
                pose = tl.load(poses + source, mask=held, other=0.0).to(ACC)[:, None, :]  # [P, 1, D]
            presence = tl.zeros([1], ACC)
            if WEIGHTED or OFFSETS == 2:
                presence = tl.load(activations + number).to(ACC)  # [1]
            votes = tl.sum(pose * factors, axis=0)[None, :, :]  # [1, J, D]
            votes = add_offsets(votes, offsets, presence, place, entry, filled, AXES, OFFSETS)
            grad_votes = tl.zeros([1, TILE_J, TILE_V * TILE_C], ACC)
            grad_presence = tl.zeros([1], ACC)
            norms = presence
            if GLOBAL:
                norms = tl.load(norm + number)  # [1]
            for iteration in range(ITERS):
                held_row = iteration * rows + number_of_row
                at = held_row * parents * D + place_in  # [1, J, D]
                pair = held_row * parents + parent[None, :]  # [1, J]
                grads = tl.load(grad + at, mask=small, other=0.0)  # [1, J, D]
                apart, squares, masses = votes, grads, pair_sums
                if GAUSS or KEY:
                    centres = tl.load(centre + at, mask=small, other=0.0)  # [1, J, D]
                if GAUSS:
                    apart = votes - centres  # [1, J, D]
                    squares = tl.load(grad_square + at, mask=small, other=0.0)  # [1, J, D]
                if GAUSS or WEIGHTED:
                    masses = tl.load(grad_mass + pair, mask=real, other=0.0)  # [1, J]
                logits = tl.zeros([1, TILE_J], ACC)
                if GAUSS and KEY:
                    sharps = tl.load(sharp + at, mask=small, other=0.0)  # [1, J, D]
                    logits = tl.load(level + pair, mask=real, other=0.0) - tl.sum(sharps * apart * apart, axis=2)
                elif KEY:
                    logits = tl.sum(votes * centres, axis=2)  # [1, J]
                if BASE:
                    logits += bases
                if ROUTE:
                    flat = tl.load(poses + number * SIZE + spot, mask=spot < SIZE, other=0.0).to(ACC)  # [S]
                    logits += tl.sum(routes * flat[None, :], axis=1)[None, :]
                coupling, _ = softmax(logits, real, norms, none_logit, GLOBAL, BACKGROUND)  # [1, J], [1]
                gains = grade(apart, grads, squares, masses, GAUSS, WEIGHTED)  # [1, J]
                mean = tl.sum(coupling * gains, axis=1)  # [1]
                share = coupling  # [1, J]
                if WEIGHTED:
                    share *= presence[:, None]
                    grad_presence += mean
                if PRIOR:
                    share += priors
                    pair_sums += gains
                if GAUSS:
                    grad_votes += share[:, :, None] * (grads + 2 * squares * apart)
                else:
                    grad_votes += share[:, :, None] * grads
                if THROUGH:
                    if GLOBAL:
                        mean = tl.load(gain + number)  # [1]
                    pulled = coupling * (gains - mean[:, None])  # [1, J]
                    if WEIGHTED:
                        pulled *= presence[:, None]
                    if GAUSS:
                        grad_votes -= 2 * pulled[:, :, None] * sharps * apart
                    elif KEY:
                        grad_votes += pulled[:, :, None] * centres
                    if BASE:
                        pair_sums += pulled
                    if ROUTE:
                        routed = tl.reshape(pulled, [TILE_J, 1])  # [J, 1]
                        route_sums += routed * flat[None, :]
                        spots = grad_routed + (number_of_row * children + child) * SIZE + spot  # [S]
                        tl.store(spots, tl.sum(routed * routes, axis=0), mask=spot < SIZE)
            grad_votes = tl.where(small, grad_votes, 0.0)  # [1, J, D]
            if WEIGHTED or OFFSETS == 2:
                if OFFSETS == 2:
                    shifts = tl.load(offsets + place * AXES + entry, mask=filled & (entry < AXES), other=0.0).to(ACC)
                    grad_presence += tl.sum(tl.sum(grad_votes * shifts[None, None, :], axis=2), axis=1)
                tl.store(grad_activations + row * children + child, grad_presence)
            into = grad_poses + (number_of_row * children + child) * SIZE  # []
            if VOTE_ROWS == 1:
                grad_pose = tl.sum(tl.sum(factors * grad_votes, axis=2), axis=1)  # [P]
                tl.store(into + inner, grad_pose, mask=inner < INNER)
            else:
                grad_pose = tl.sum(factors * grad_votes, axis=1)  # [P, D]
                grad_pose = tl.sum(tl.reshape(grad_pose, [TILE_P, TILE_V, TILE_C]), axis=2)  # [P, V]
                high = tl.arange(0, TILE_V)[None, :]  # [1, V]
                held = (inner < INNER)[:, None] & (high < VOTE_ROWS)  # [P, V]
                tl.store(into + high * INNER + inner[:, None], grad_pose, mask=held)
            total += pose * grad_votes
        slot = tl.program_id(1).to(tl.int64) * children + child
        if PRIOR or BASE:
            tl.store(grad_pair + slot * parents + parent[None, :], pair_sums, mask=real)
        if ROUTE:
            way = (slot * parents + parent[:, None]) * SIZE + spot[None, :]  # [J, S]
            tl.store(grad_route + way, route_sums, mask=routable)
    slot = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    into = grad_weight + slot * parents * INNER * COLUMNS
    if VOTE_ROWS == 1:
        tl.store(into + line * COLUMNS + column[None, None, :], total, mask=known)
    else:
        total = tl.sum(tl.reshape(total, [TILE_P, TILE_J, TILE_V, TILE_C]), axis=2)  # [P, J, C]
        low = tl.arange(0, TILE_C)[None, None, :]  # [1, 1, C]
        known = (inner < INNER)[:, None, None] & (real[:, :, None] & (low < COLUMNS))  # [P, J, C]
        tl.store(into + line * COLUMNS + low, total, mask=known)
# fmt: on
