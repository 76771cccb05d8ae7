"""Programs that work on one vector together: each publishes its numbers, and collects all.

Every program of a team does the same work on its part of a vector, and meets the others after each
reading; sums are added in the order of the programs, so that the bits are the same every time.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from .device import INFINITY, Case

SLOTS = tl.constexpr(8)
"""Numbers that a program can publish at a time."""


@dataclass(frozen=True)
class Team:
    """How programs share a vector; a kernel adds what it wants of it."""

    case: Case
    programs: int

    @property
    def width(self) -> int:
        """The next power of two: how far apart the slots for different numbers lie."""
        return 1 << (self.programs - 1).bit_length()


@triton.jit
def number_and_member(TEAM):
    """Return which team a program is in, and which member of it."""
    return (tl.program_id(0) // TEAM.programs).to(tl.int64), tl.program_id(0) % TEAM.programs


@triton.jit
def meet(counter, turn, TEAM):
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
def reduced(numbers, HOW):
    """Return the largest, the smallest or the sum of each, as HOW says."""
    found = ()
    for i in tl.static_range(len(numbers)):
        if HOW[i] == ">":
            one = tl.max(numbers[i], 0)
        elif HOW[i] == "<":
            one = tl.min(numbers[i], 0)
        else:
            one = tl.sum(numbers[i], 0)
        found = found + (one,)
    return found


@triton.jit
def exchange(numbers, team, turn, HOW, TEAM):
    """Publish numbers, meet, and return those of all programs, each along an axis.

    HOW says what will be done with each: +, > or <. `team` are the counters and slots of all teams.
    Two sets of slots take turns: nobody writes over what another one has yet to read.
    """
    number, member = number_and_member(TEAM)
    slots = team[1] + (number * 2 + turn % 2) * (TEAM.width * SLOTS)
    for i in tl.static_range(len(numbers)):
        tl.store(slots + i * TEAM.width + member, numbers[i].to(tl.float64))
    meet(team[0] + number, turn, TEAM)
    members = tl.arange(0, TEAM.width)
    found = ()
    for i in tl.static_range(len(numbers)):
        fill = -INFINITY if HOW[i] == ">" else INFINITY if HOW[i] == "<" else 0.0
        at, there = slots + i * TEAM.width + members, members < TEAM.programs
        one = tl.load(at, mask=there, other=fill, cache_modifier=".cg")
        found = found + (one.to(numbers[i].dtype),)
    return found


@triton.jit
def join(numbers, team, turn, HOW, TEAM):
    """Return the sums, largest or smallest over the team, as HOW says, and the next turn."""
    if TEAM.programs > 1:
        numbers = reduced(exchange(numbers, team, turn, HOW, TEAM), HOW)
    return numbers, turn + 1
