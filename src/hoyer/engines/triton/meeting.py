"""Programs that work on one vector together: each publishes its numbers, and collects all.

Every program of a team does the same work on its part of a vector, and meets the others after each
reading; sums are added in the order of the programs, so that the bits are the same every time.

There is no counter to wait for: 32 bits of a number are stored with the number of the meeting, in
one word of 64 bits that is never seen in part, and whoever collects looks until all are of this
meeting. So nothing has to be ordered in memory, and a meeting takes one way there and one back.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from .device import INFINITY, Case

WORDS = tl.constexpr(16)
"""Words that a program can publish at a time: one for each number of 32 bits, two for 64."""

_TURN = tl.constexpr(0xFFFFFFFF)
"""The half of a word that has the number of its meeting, never 0: slots are filled with zeros."""


@dataclass(frozen=True)
class Team:
    """How programs share a vector; a kernel adds what it wants of it."""

    case: Case
    programs: int

    @property
    def width(self) -> int:
        """The next power of two: how far apart the slots for different words lie."""
        return 1 << (self.programs - 1).bit_length()


@triton.jit
def number_and_member(TEAM):
    """Return which team a program is in, and which member of it."""
    return (tl.program_id(0) // TEAM.programs).to(tl.int64), tl.program_id(0) % TEAM.programs


@triton.jit
def _in_words(numbers, turn, WIDE):
    """Return numbers as words of a meeting."""
    words = ()
    for i in tl.static_range(len(numbers)):
        if WIDE:
            bits = numbers[i].to(tl.float64).to(tl.int64, bitcast=True)
            words = words + ((bits & ~_TURN) | turn, (bits << 32) | turn)
        else:
            bits = numbers[i].to(tl.int32, bitcast=True).to(tl.int64)
            words = words + ((bits << 32) | turn,)
    return words


@triton.jit
def _from_words(words, i, like, WIDE):
    """Return number i of words, of the type of `like`."""
    if WIDE:
        bits = (words[2 * i] & ~_TURN) | ((words[2 * i + 1] >> 32) & _TURN)
        number = bits.to(tl.float64, bitcast=True).to(like.dtype)
    else:
        number = (words[i] >> 32).to(tl.int32).to(like.dtype, bitcast=True)
    return number


@triton.jit
def _look(at, there, turn, COUNT, TEAM):
    """Return the words of all programs as they are now; of this turn where there is no program."""
    words = ()
    for i in tl.static_range(COUNT):
        words = words + (tl.load(at + i * TEAM.width, mask=there, other=turn, volatile=True),)
    return words


@triton.jit
def _some_missing(words, turn):
    """Whether some of the words are not of this turn."""
    other = words[0] ^ turn
    for i in tl.static_range(1, len(words)):
        other = other | (words[i] ^ turn)
    return tl.max(((other & _TURN) != 0).to(tl.int32), 0) > 0


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
def exchange(numbers, slots, turn, HOW, WIDE, TEAM):
    """Publish numbers, and return those of all programs, each along an axis.

    HOW says what will be done with each: +, > or <; WIDE, whether there are any of 64 bits. `slots`
    are those of all teams. Two sets of them take turns: nobody writes over what another one has yet
    to read.
    """
    number, member = number_and_member(TEAM)
    at = slots + (number * 2 + turn % 2) * (TEAM.width * WORDS)
    meeting = turn + 0 * number
    mine = _in_words(numbers, meeting, WIDE)
    # Slots for as many words lie behind those of the other turn.
    tl.static_assert(len(mine) <= WORDS)
    # All threads have to be done with the meeting before. (Nothing else is needed: these stores and
    # loads are volatile assembly, which stays in its order.)
    tl.debug_barrier()
    for i in tl.static_range(len(mine)):
        tl.store(at + i * TEAM.width + member, mine[i])
    members = tl.arange(0, TEAM.width)
    there = members < TEAM.programs
    words = _look(at + members, there, meeting, len(mine), TEAM)
    going = _some_missing(words, meeting)
    while going:
        words = _look(at + members, there, meeting, len(mine), TEAM)
        going = _some_missing(words, meeting)
    found = ()
    for i in tl.static_range(len(numbers)):
        one = _from_words(words, i, numbers[i], WIDE)
        if HOW[i] != "+":
            one = tl.where(there, one, -INFINITY if HOW[i] == ">" else INFINITY)
        found = found + (one,)
    return found


@triton.jit
def join(numbers, slots, turn, HOW, TEAM):
    """Return the sums, largest or smallest over the team, as HOW says, and the next turn."""
    if TEAM.programs > 1:
        numbers = reduced(exchange(numbers, slots, turn, HOW, True, TEAM), HOW)
    return numbers, turn + 1
