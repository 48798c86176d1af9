"""Slow, obvious click models, straight from their equations, and the probability of a click at each rank.

Nothing here is shared with the package. `draw(slot)` is the uniform number that belongs to a slot of the session: an
item's first draw has the item as its slot, its second draw the item plus 2**31. `R[d]` is the true relevance of item d.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

SECOND = 2**31


def position_based(noise, pi, R, p, draw):
    """Eq. 9 and 10 with noise: an examined item that is not found relevant is clicked with probability `noise`."""
    return [draw(d) < p[j] * (R[d] + noise * (1 - R[d])) for j, d in enumerate(pi)]


def cascade(stop, pi, R, p, draw):
    """Craswell et al. (2008), softened: read from the top, click what is relevant, stop after a click by a coin."""
    hits = []
    for d in pi:
        clicked = draw(d) < R[d]
        hits.append(clicked)
        if clicked and draw(d + SECOND) >= 1 - stop:
            break
    return hits + [False] * (len(pi) - len(hits))


def dbn(satisfaction, continuation, pi, R, p, draw):
    """Chapelle and Zhang (2009): after a click that satisfies stop, else read on with probability `continuation`."""
    hits = []
    for d in pi:
        clicked = draw(d) < R[d]
        hits.append(clicked)
        stays = continuation * (1 - satisfaction) if clicked else continuation
        if draw(d + SECOND) >= stays:
            break
    return hits + [False] * (len(pi) - len(hits))


def at_rank(values, j):
    """A value for each rank, the last one also for the ranks below."""
    return values[j] if j < len(values) else values[-1]


def trust_bias(positive, negative, pi, R, p, draw):
    """Agarwal et al. (2019)."""
    return [
        draw(d) < p[j] * (at_rank(positive, j) * R[d] + at_rank(negative, j) * (1 - R[d])) for j, d in enumerate(pi)
    ]


MODELS = {"PositionBased": position_based, "Cascade": cascade, "DBN": dbn, "TrustBias": trust_bias}


def twin(model):
    """The slow click model with the parameters of a click model of the package."""
    names = {
        "PositionBased": ("noise",),
        "Cascade": ("stop",),
        "DBN": ("satisfaction", "continuation"),
        "TrustBias": ("positive", "negative"),
    }[type(model).__name__]
    return partial(MODELS[type(model).__name__], *(getattr(model, name) for name in names))


def users_examination(model, p):
    """How the users of a model examine ranks: by a severity of their own, or as exposure assumes."""
    severity = getattr(model, "severity", None)
    return p if severity is None else [(1 / math.log2(j + 1)) ** severity for j in range(1, len(p) + 1)]


# --- the probability of a click at each rank -------------------------------------------------------------------------


def position_based_rates(noise, r, p):
    return [p[j] * (r[j] + noise * (1 - r[j])) for j in range(len(r))]


def cascade_rates(stop, r, p):
    return [r[j] * math.prod(1 - stop * r[i] for i in range(j)) for j in range(len(r))]


def dbn_rates(satisfaction, continuation, r, p):
    return [r[j] * math.prod(continuation * (1 - satisfaction * r[i]) for i in range(j)) for j in range(len(r))]


def trust_bias_rates(positive, negative, r, p):
    return [p[j] * (at_rank(positive, j) * r[j] + at_rank(negative, j) * (1 - r[j])) for j in range(len(r))]


RATES = {
    "PositionBased": position_based_rates,
    "Cascade": cascade_rates,
    "DBN": dbn_rates,
    "TrustBias": trust_bias_rates,
}


def rates(model, r, p):
    """P(click at rank j) of a list whose items have relevance r, by the formula of the model."""
    return RATES[type(model).__name__](*twin(model).args, r, users_examination(model, p))


def dbn_rates_by_enumeration(satisfaction, continuation, r):
    """The same for DBN over all that a user can do at each rank: click or not, be satisfied or not, read on or not."""
    total = [0.0] * len(r)
    for events in itertools.product(itertools.product((True, False), repeat=3), repeat=len(r)):
        probability, reading, clicked = 1.0, True, [False] * len(r)
        for j, (attractive, satisfied, patient) in enumerate(events):
            probability *= r[j] if attractive else 1 - r[j]
            probability *= satisfaction if satisfied else 1 - satisfaction
            probability *= continuation if patient else 1 - continuation
            clicked[j] = reading and attractive
            reading = reading and patient and not (clicked[j] and satisfied)
        for j in range(len(r)):
            total[j] += probability * clicked[j]
    return total


# --- the exposure that users give ------------------------------------------------------------------------------------


def attention(model, r, p):
    """P(rank j is examined) of a list whose items have relevance r: that of a click if the item there is certain.

    What is below a rank does not matter to it, and a relevant item that is examined is clicked by users of these
    models, but for trust bias, whose users click with probability ε⁺.
    """
    found = []
    for j in range(len(r)):
        certain = [*r[:j], 1.0, *r[j + 1 :]]
        positive = at_rank(model.positive, j) if type(model).__name__ == "TrustBias" else 1.0
        found.append(rates(model, certain, p)[j] / positive)
    return found
