"""Slow, obvious oracles of what exposure can be reached; w is what each rank of all visits together hands out.

Nothing here is shared with the package.
"""

from __future__ import annotations

import itertools

import numpy as np


def ordered_partitions(items):
    """Every way of putting items in groups that stand in a row."""
    if not items:
        yield []
    for size in range(1, len(items) + 1):
        for first in itertools.combinations(items, size):
            for rest in ordered_partitions([d for d in items if d not in first]):
                yield [list(first), *rest]


def is_reachable(E, w, tolerance=1e-9):
    """Whether w majorises E: as much in all, and the j most exposed never have more than the first j ranks give."""
    have, most = np.cumsum(np.sort(E)[::-1]), np.cumsum(np.sort(w)[::-1])
    margin = tolerance * max(1.0, most[-1])
    return bool(np.all(have <= most + margin) and abs(have[-1] - most[-1]) <= margin)


def nearest(z, w):
    """Return the reachable point nearest to z by trying every face.

    On a face the groups of an ordered partition have the ranks one group after the other; the nearest point of the
    plane it lies in moves all items of a group alike.
    """
    best, distance = None, np.inf
    for groups in ordered_partitions(list(range(len(z)))):
        E, rank = np.empty(len(z)), 0
        for group in groups:
            E[group] = z[group] + (w[rank : rank + len(group)].sum() - z[group].sum()) / len(group)
            rank += len(group)
        if is_reachable(E, w) and ((E - z) ** 2).sum() < distance:
            best, distance = E, ((E - z) ** 2).sum()
    return best


def sort_oracle(w):
    """Return the function that hands the most exposed rank to the lowest slope."""

    def lowest(slope):
        E = np.empty(len(w))
        E[np.argsort(slope, kind="stable")] = w
        return tuple(E)

    return lowest


def list_oracle(corners):
    """Return the function that picks the lowest of some corners."""
    return lambda slope: min(corners, key=lambda E: slope @ np.array(E))


def group_corners(groups, w):
    """The exposures of groups that single lists give, by trying every order of the items."""
    labels = sorted(set(groups))
    return list(
        {
            tuple(sum(w[j] for j, d in enumerate(order) if groups[d] == label) for label in labels)
            for order in itertools.permutations(range(len(w)))
        }
    )


def most_effective_corners(R, w):
    """All the exposures of best lists: one for every order of items of equal relevance."""
    corners = {tuple(w[list(rank)]) for rank in itertools.permutations(range(len(w)))}
    most = max(np.array(E) @ R for E in corners)
    return [E for E in corners if np.array(E) @ R >= most - 1e-12]


def pairwise_frank_wolfe(R, lowest, mu=0.0, steps=3000, tolerance=1e-11):
    """Minimise unfairness - μ R·E over mixtures of corners; return the value, a lower bound and E.

    Each step moves weight from the worst corner in use to the best corner there is, as far as is best.
    """
    n = len(R)
    A = 2 / (n * (n - 1)) * (R @ R * np.eye(n) - np.outer(R, R))  # unfairness is E·A·E
    weights = {lowest(-R): 1.0}
    for _ in range(steps):
        E = sum(weight * np.array(corner) for corner, weight in weights.items())
        value, slope = E @ A @ E - mu * R @ E, 2 * A @ E - mu * R
        toward, away = lowest(slope), max(weights, key=lambda corner: slope @ np.array(corner))
        gap = slope @ (E - np.array(toward))
        move = np.array(toward) - np.array(away)
        if gap <= tolerance * max(1.0, abs(value)) or not move.any():
            break
        bend, fall = 2 * move @ A @ move, -slope @ move
        step = weights[away] if bend * weights[away] <= fall else fall / bend
        weights[toward] = weights.get(toward, 0.0) + step
        weights[away] -= step
        if weights[away] <= 0:
            del weights[away]
    return value, value - gap, E
