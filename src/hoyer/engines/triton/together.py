"""Programs that work on one vector together: each publishes its numbers, and collects all.

Every program of a team does the same work on its part of a vector, and meets the others after each
reading; sums are added in the order of the programs, so that the bits are the same every time.
A kernel's TEAM names how many `programs` a team has, and the `width` of its slots.
"""

import triton
import triton.language as tl

from .device import INFINITY

SLOTS = tl.constexpr(8)
"""Numbers that a program can publish at a time."""


@triton.jit
def meet(counter, turn, TEAM: tl.constexpr):
    """Wait until all programs of a team have come here for the `turn`-th time."""
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem="acq_rel") + 1
    while arrived < turn * TEAM.programs:
        # Loads do not queue up as atomics do; the one that ends it makes the others' numbers seen.
        seen = arrived
        while seen < turn * TEAM.programs:
            seen = tl.load(counter, volatile=True)
        arrived = tl.atomic_add(counter, 0, sem="acq_rel")
    tl.debug_barrier()


@triton.jit
def publish(numbers, slots, member, TEAM: tl.constexpr):
    """Leave numbers where the other programs of the team find them."""
    for i in tl.static_range(len(numbers)):
        tl.store(slots + i * TEAM.width + member, numbers[i].to(tl.float64))


@triton.jit
def collect(numbers, slots, HOW: tl.constexpr, TEAM: tl.constexpr):
    """Return what all programs have published, each number of theirs along an axis."""
    members = tl.arange(0, TEAM.width)
    there = members < TEAM.programs
    found = ()
    for i in tl.static_range(len(numbers)):
        fill = -INFINITY if HOW[i] == ">" else INFINITY if HOW[i] == "<" else 0.0
        at = slots + i * TEAM.width + members
        all_of = tl.load(at, mask=there, other=fill, cache_modifier=".cg")
        found = found + (all_of.to(numbers[i].dtype),)
    return found


@triton.jit
def exchange(numbers, team, turn, HOW: tl.constexpr, TEAM: tl.constexpr):
    """Publish, meet and collect; HOW says what will be done with each: +, > (largest) or <.

    `team` is the counter of the team, its slots, and which member this program is. Two sets of
    slots take turns: nobody writes over what another one has yet to read.
    """
    counter, slots, member = team
    slots += (turn % 2) * (TEAM.width * SLOTS)
    publish(numbers, slots, member, TEAM)
    meet(counter, turn, TEAM)
    return collect(numbers, slots, HOW, TEAM)


@triton.jit
def join(numbers, team, turn, HOW: tl.constexpr, TEAM: tl.constexpr):
    """Return the sums, largest or smallest over the team, as HOW says, and the next turn."""
    if TEAM.programs > 1:
        all_of = exchange(numbers, team, turn, HOW, TEAM)
        numbers = ()
        for i in tl.static_range(len(all_of)):
            if HOW[i] == ">":
                one = tl.max(all_of[i], 0)
            elif HOW[i] == "<":
                one = tl.min(all_of[i], 0)
            else:
                one = tl.sum(all_of[i], 0)
            numbers = numbers + (one,)
    return numbers, turn + 1
