"""PLFair (Oosterhuis 2021): sample lists by scores that a network learns from features, to be relevant or fair."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import PolicyError
from ..parts import NonNegative, Share, register
from ..random import Draws, uniform, uniforms
from ..state import Query, State
from .base import Policy
from .selection import BY_INDEX, sort_by_insertion
from .terms import RAW, add_certainty, write_gradient

HIDDEN = 32  # units in each of the two hidden layers
LAST = 2**32 - 1  # of the query that draws the initial weights, and of the slot that draws the order of training
LEAST_UNIFORM = 2.0**-54  # replaces a draw of 0, whose logarithm is not finite
LEAST_EXPONENT = -600.0  # of an item's weight against the largest: sums and quotients of weights stay finite, not 0


# --- the Plackett–Luce model -----------------------------------------------------------------------------------------


@kernel
def sample_list(s: FloatArray, rng: Draws, slot: int, keys: FloatArray, items: IntArray, pi: IntArray) -> None:
    """Draw the top of a Plackett–Luce list: the highest `s(d) - log(-log u(d))`, u(d) having slot + d."""
    for d in range(s.shape[0]):
        items[d] = d
        keys[d] = s[d] - math.log(-math.log(max(uniform(rng, slot + d), LEAST_UNIFORM)))
    sort_by_insertion(keys, keys, BY_INDEX, rng, items, s.shape[0], pi)


@kernel
def fill_weights(s: FloatArray, w: FloatArray) -> None:
    """Write `w(d) = exp(s(d) - max s)`: the chance of an item at a rank is its share of w among the items left."""
    top = -np.inf
    for d in range(s.shape[0]):
        top = max(top, s[d])
    for d in range(s.shape[0]):
        w[d] = math.exp(max(s[d] - top, LEAST_EXPONENT))


@kernel
def fill_exposure(lists: IntArray, w: FloatArray, p: FloatArray, e: FloatArray) -> None:
    """Write the expected exposure `e(d) = Σ_j p_j P(y_j = d)`: rank 1 exactly, the others from sampled lists y."""
    total = 0.0
    for d in range(w.shape[0]):
        total += w[d]
    for d in range(w.shape[0]):
        e[d] = p[0] * w[d] / total
    for i in range(lists.shape[0]):
        for j in range(1, lists.shape[1]):
            e[lists[i, j]] += p[j] / lists.shape[0]


@kernel(allocates=True)
def pl_rank_3(lists: IntArray, w: FloatArray, labels: FloatArray, p: FloatArray, g: FloatArray) -> None:
    """Estimate the gradient in s of the expected `Σ_j p_j l(y_j)` from sampled lists y (PL-Rank-3, Oosterhuis 2022).

    With `c_j = Σ_{x≥j} p_x l(y_x)` and D_j the sum of w over the items not placed before rank j, it is the mean over
    lists of `c_{j+1} + w(d) Σ_{x≤j} (l(d) p_x - c_x)/D_x`, where j is the rank of d, or k if d was not placed.
    """
    n, k = w.shape[0], lists.shape[1]
    left, c, D = np.empty(n), np.empty(k + 1), np.empty(k)
    for d in range(n):
        g[d] = 0.0
    for i in range(lists.shape[0]):
        y = lists[i]
        for d in range(n):
            left[d] = w[d]
        for j in range(k):
            left[y[j]] = 0.0
        below = 0.0  # from the back: subtracting items from a total would leave its rounding error
        for d in range(n):
            below += left[d]
        c[k] = 0.0
        for j in range(k - 1, -1, -1):
            below += w[y[j]]
            D[j] = below
            c[j] = c[j + 1] + p[j] * labels[y[j]]
        gain = cost = 0.0
        for j in range(k):
            d = y[j]
            gain += p[j] / D[j]
            cost += c[j] / D[j]
            g[d] += c[j + 1] + w[d] * (labels[d] * gain - cost)
        for d in range(n):
            g[d] += left[d] * (labels[d] * gain - cost)
    for d in range(n):
        g[d] /= lists.shape[0]


# --- the network -----------------------------------------------------------------------------------------------------


class Network(NamedTuple):
    """Two hidden layers and one score, `s = w3 · σ(W2ᵀ σ(W1ᵀ x + b1) + b2)`.

    The score has no bias: a number added to every score of a query changes neither lists nor training.
    """

    W1: FloatArray
    b1: FloatArray
    W2: FloatArray
    b2: FloatArray
    w3: FloatArray


def initial_network(features: int, rng: Draws) -> Network:
    """Draw Glorot-uniform weights, between ±√(6/(inputs + outputs)); biases are 0."""
    shapes = (features, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)
    ends = np.cumsum([inputs * outputs for inputs, outputs in shapes])
    u = uniforms(rng._replace(query=np.uint64(LAST), visit=np.uint64(0)), int(ends[-1]))
    W1, W2, w3 = (
        math.sqrt(6.0 / sum(shape)) * (2.0 * part.reshape(shape) - 1.0)
        for shape, part in zip(shapes, np.split(u, ends[:-1]), strict=True)
    )
    return Network(W1, np.zeros(HIDDEN), W2, np.zeros(HIDDEN), w3.ravel())


@kernel
def scale_features(X: FloatArray, offsets: IntArray) -> None:
    """Map each feature of each query to [0, 1], its lowest value to 0 and its highest to 1; a constant one to 0."""
    for q in range(offsets.shape[0] - 1):
        for f in range(X.shape[1]):
            low, high = np.inf, -np.inf
            for i in range(offsets[q], offsets[q + 1]):
                low, high = min(low, X[i, f]), max(high, X[i, f])
            for i in range(offsets[q], offsets[q + 1]):
                X[i, f] = (X[i, f] - low) / (high - low) if high > low else 0.0


@kernel
def fill_layer(X: FloatArray, W: FloatArray, b: FloatArray, H: FloatArray) -> None:
    """Write `σ(X W + b)`."""
    for d in range(X.shape[0]):
        out = H[d]
        for h in range(out.shape[0]):
            out[h] = b[h]
        for f in range(X.shape[1]):
            x, row = X[d, f], W[f]
            for h in range(out.shape[0]):
                out[h] += x * row[h]
        for h in range(out.shape[0]):
            out[h] = 1.0 / (1.0 + math.exp(min(-out[h], 700.0)))  # exp(710) is not finite


@kernel
def forward(net: Network, X: FloatArray, H1: FloatArray, H2: FloatArray, s: FloatArray) -> bool:
    """Write the hidden units and the scores of some items; return whether the scores are finite."""
    fill_layer(X, net.W1, net.b1, H1)
    fill_layer(H1, net.W2, net.b2, H2)
    size = 0.0
    for d in range(X.shape[0]):
        s[d] = 0.0
        for h in range(HIDDEN):
            s[d] += net.w3[h] * H2[d, h]
        size += abs(s[d])
    return size < np.inf


@kernel(allocates=True)
def ascend(net: Network, X: FloatArray, H1: FloatArray, H2: FloatArray, g: FloatArray, lr: float) -> None:
    """Add `lr Σ_d g(d) ∂s(d)/∂θ` to every weight θ."""
    D1, D2 = np.empty(H1.shape), np.empty(H2.shape)  # the same sum's summands for the inputs of the hidden units
    for d in range(X.shape[0]):
        for h in range(HIDDEN):
            D2[d, h] = g[d] * net.w3[h] * H2[d, h] * (1.0 - H2[d, h])
        for h in range(HIDDEN):
            back = 0.0
            for i in range(HIDDEN):
                back += net.W2[h, i] * D2[d, i]
            D1[d, h] = back * H1[d, h] * (1.0 - H1[d, h])
    for d in range(X.shape[0]):
        for h in range(HIDDEN):
            net.w3[h] += lr * g[d] * H2[d, h]
    add_product(H1, D2, lr, net.W2, net.b2)
    add_product(X, D1, lr, net.W1, net.b1)


@kernel
def add_product(X: FloatArray, D: FloatArray, lr: float, W: FloatArray, b: FloatArray) -> None:
    """Add `lr Xᵀ D` to W, and to b the same for an input that is always 1."""
    for d in range(X.shape[0]):
        delta = D[d]
        for h in range(delta.shape[0]):
            b[h] += lr * delta[h]
        for f in range(X.shape[1]):
            x, row = lr * X[d, f], W[f]
            for h in range(delta.shape[0]):
                row[h] += x * delta[h]


# --- training --------------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def train_epoch(
    net: Network,
    X: FloatArray,
    R: FloatArray,
    offsets: IntArray,
    places: IntArray,
    order: IntArray,
    p: FloatArray,
    alpha: float,
    lr: float,
    samples: int,
    rng: Draws,
) -> bool:
    """Sample lists of one query after the other, and improve the network by them; return whether scores stay finite."""
    for q in order:
        x, relevance = X[offsets[q] : offsets[q + 1]], R[offsets[q] : offsets[q + 1]]
        n, draws = relevance.shape[0], Draws(rng.seed, rng.purpose, np.uint64(places[q]), rng.visit)
        H1, H2 = np.empty((n, HIDDEN)), np.empty((n, HIDDEN))
        s, w, e, labels, g = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        lists = np.empty((samples, min(p.shape[0], n)), np.int64)
        keys, items = np.empty(n), np.empty(n, np.int64)
        if not forward(net, x, H1, H2, s):
            return False
        for i in range(samples):
            sample_list(s, draws, i * n, keys, items, lists[i])
        fill_weights(s, w)
        fill_exposure(lists, w, p, e)
        write_gradient(e, relevance, 0, 1.0 - alpha, alpha, RAW, labels)  # the value of exposing each item
        pl_rank_3(lists, w, labels, p, g)
        ascend(net, x, H1, H2, g, lr)
    return True


@kernel(allocates=True)
def fill_scores(net: Network, X: FloatArray, offsets: IntArray, scores: FloatArray) -> bool:
    """Write the scores of each query to the beginning of its row; return whether all are finite."""
    finite = True
    H1, H2 = np.empty((scores.shape[1], HIDDEN)), np.empty((scores.shape[1], HIDDEN))
    for q in range(scores.shape[0]):
        finite = forward(net, X[offsets[q] : offsets[q + 1]], H1, H2, scores[q]) and finite
    return finite


# --- the policy ------------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def plfair_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Sample one list by the learnt scores + β MC; an item without a learnt score has 0."""
    n = q.R.shape[0]
    s = np.zeros(n)
    for d in range(min(n, q.memory.shape[0])):  # every query's memory is as long as the longest query
        s[d] = q.memory[d]
    add_certainty(q.E, q.prior_strength, theta[4], theta[5], s)
    sample_list(s, rng, 0, s, np.empty(n, np.int64), out)


@register
class PLFair(Policy):
    """Sample lists from a Plackett–Luce model whose scores a network learns from the features of the queries it serves.

    What it learns is a function of data and seed, and every fit begins with the same weights. Online it learns from the
    estimated relevance; before the first click it keeps the weights it began with.

    Parameters
    ----------
    alpha
        What to learn: 0 to show relevant items, 1 to share exposure in proportion to relevance.
    epochs
        How often training takes a step for each query.
    lr
        Length of the steps. With the published 0.1 the network is still far from trained; 1 is much fairer.
    samples
        Lists sampled for each step.
    beta, mc_floor
        Weight of marginal certainty, added to the learnt scores, and the smallest squared exposure in it (Eq. 29).

    Examples
    --------
    With α = 0 the network learns that a higher feature means more relevance:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0], X=[[1.0], [0.5], [0.0]])
    >>> mf.simulate(data, PLFair(alpha=0, epochs=20, lr=10, samples=10), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 1], [0, 1]]
    """

    alpha: Share = 1.0
    epochs: Annotated[int, msgspec.Meta(ge=0, lt=2**24, description="a whole number from 0 to 2**24 - 1")] = 20
    lr: Annotated[float, msgspec.Meta(gt=0.0, description="a finite number above 0")] = 0.1
    samples: Annotated[int, msgspec.Meta(ge=1, lt=2**20, description="a whole number from 1 to 2**20 - 1")] = 100
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1

    kernel = plfair_rank
    style = ("#999999", "p")
    ranks = True
    fits = 10
    cost = 80.0
    needs_features = True

    def prepare(self, data: Dataset, state: State, rng: Draws) -> FloatArray | None:
        """Train, and return the scores of each query, padded with 0; None if there is nothing new to learn from.

        Draws belong to a query's place and an epoch: the order of the queries does not matter.
        """
        if data.X is None:
            raise PolicyError(
                f"PLFair learns from features, and {data.name} has none; load_letor(path, features=True) reads them"
            )
        if rng.visit > 0 and not state.C.any():
            return None
        R = data.R if data.scores is None else data.scores
        X = np.array(data.X, np.float64)
        scale_features(X, data.offsets)
        net = initial_network(X.shape[1], rng)
        informative = R.size > 0 and R.min() < R.max()
        for epoch in range(self.epochs if informative else 0):
            draw_rng = rng._replace(visit=np.uint64(int(rng.visit) * self.epochs + epoch))
            turns = [uniform(draw_rng._replace(query=np.uint64(place)), LAST) for place in data.places]
            order = np.argsort(turns, kind="stable")
            rules = state.p, self.alpha, self.lr, self.samples, draw_rng
            if not train_epoch(net, X, R, data.offsets, data.places, order, *rules):
                break  # the weights stay as they are, so the scores below are not finite either
        scores = np.zeros((data.queries, int(data.sizes.max(initial=0))))
        if not fill_scores(net, X, data.offsets, scores):
            raise PolicyError(f"{self!r}: training diverged, scores are no longer finite; a lower lr may help")
        return scores
