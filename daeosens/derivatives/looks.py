"""How often a check that costs something looks at the runs of a problem."""

from __future__ import annotations

from daeosens.problem.problem import Problem
from daeosens.problem.problem_cache import ProblemCache


class Looks:
    """Counts the uses of problems: runs of one problem resemble each other."""

    def __init__(self) -> None:
        self._counts: ProblemCache[list[int]] = ProblemCache(lambda: [0])

    def count(self, problem: Problem) -> int:
        """Count one more use of a problem, and return how many it has had."""
        counts = self._counts.of(problem)
        counts[0] += 1
        return counts[0]

    def due(self, problem: Problem) -> bool:
        """Count one more use of a problem; whether it is the first, the 8th, the 64th ..."""
        return is_due(self.count(problem))


def is_due(count: int) -> bool:
    """Whether a count is a power of eight."""
    return not count & (count - 1) and count.bit_length() % 3 == 1
