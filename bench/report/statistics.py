"""What may be said of a few runs: the mean and its 95 % interval by Student's t, and the paired
t-test of two queues. Repetitions have the same packets at the same times for every queue, so the
pairs are repetitions. (SFDPS §5 compares its 30 runs by a t-test, too.)"""

from math import sqrt
from statistics import variance
from typing import NamedTuple

from scipy.stats import t

SIGNIFICANCE = 0.05


class Estimate(NamedTuple):
    """A mean; `half` is half the width of its interval, None of one run."""

    mean: float
    half: float | None


class Difference(NamedTuple):
    """Of two means: with half its interval and the p of equal means."""

    mean: float
    half: float
    p: float


def mean(values):
    return sum(values) / len(values)


def quantile(degrees):
    return float(t.ppf(1 - SIGNIFICANCE / 2, degrees))


def estimate(values):
    """Of these runs; None without any."""
    if len(values) < 2:
        return Estimate(values[0], None) if values else None
    runs = len(values)
    return Estimate(mean(values), quantile(runs - 1) * sqrt(variance(values)) / sqrt(runs))


def paired(pairs, step):
    """The paired t-test; None of fewer than two pairs.

    Runs are counts of ADUs in %, and `step` is what one ADU is of that. Rounding to whole ADUs alone
    has a variance of step²/12, and no queue's runs are believed to vary less: two runs that differ by
    one frame each prove nothing, thirty do.
    """
    if len(pairs) < 2:
        return None
    differences = [first - second for first, second in pairs]
    error = sqrt(max(variance(differences), step * step / 6) / len(pairs))
    degrees = len(pairs) - 1
    more = mean(differences)
    return Difference(more, quantile(degrees) * error, 2 * float(t.sf(abs(more) / error, degrees)))


def holm(p):
    """The p of many tests, adjusted by Holm's step-down procedure: with a probability of 95 % none
    that is below 5 % then is chance, however the tests depend on each other."""
    order = sorted(range(len(p)), key=lambda at: p[at])
    adjusted, least = [0.0] * len(p), 0.0
    for rank, at in enumerate(order):
        least = max(least, min(p[at] * (len(p) - rank), 1.0))
        adjusted[at] = least
    return adjusted
