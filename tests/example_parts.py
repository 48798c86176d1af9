"""A user's own parts: one of each kind, compiled and in plain Python, with the same parameters and the same results."""

from typing import Annotated

import msgspec
import numpy as np

import mcfair as mf
from mcfair.random import uniform


@mf.kernel
def overdue_score(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = theta[0] * q.R[d] - q.E[d] + theta[1] * uniform(rng, d)


@mf.kernel
def eager_clicks(pi, truth, p, theta, rng, hits):
    for j in range(pi.shape[0]):
        hits[j] = uniform(rng, pi[j]) < p[j] * max(truth[pi[j]], theta[0])


@mf.kernel
def smoothed_estimate(C, E, F, p, theta, out):
    shown = 0.0
    for j in range(F.shape[0]):
        shown += F[j]
    out[0] = (C + theta[0]) / (shown + theta[0] + theta[0])
    out[1] = 1.0 / (shown + theta[0])


@mf.kernel
def peak_value(E, R, groups, visits, theta):
    most = 0.0
    for d in range(E.shape[0]):
        most = max(most, E[d] / visits)
    return most


class Overdue(mf.Policy):
    weight: float = 2.0
    noise: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")] = 0.1

    kernel = overdue_score


class PlainOverdue(mf.Policy):
    weight: float = 2.0
    noise: float = 0.1

    def score(self, q, rng):
        return self.weight * q.R - q.E + self.noise * np.array([uniform(rng, d) for d in range(q.R.size)])


class Eager(mf.ClickModel):
    least: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")] = 0.3

    kernel = eager_clicks


class PlainEager(mf.ClickModel):
    least: float = 0.3

    def clicks(self, pi, truth, p, rng):
        return np.array([uniform(rng, d) < p[j] * max(truth[d], self.least) for j, d in enumerate(pi)])


class Smoothed(mf.Estimator):
    strength: Annotated[float, msgspec.Meta(gt=0.0, description="a finite number above 0")] = 1.0

    kernel = smoothed_estimate


class PlainSmoothed(mf.Estimator):
    strength: float = 1.0

    def estimate(self, C, E, F, p):
        shown = float(F.sum())
        return (C + self.strength) / (shown + self.strength + self.strength), 1.0 / (shown + self.strength)


class Peak(mf.Metric):
    kernel = peak_value


class PlainPeak(mf.Metric):
    def value(self, E, R, groups, visits):
        return max(E / visits)


BASES = {"policies": mf.Policy, "clicks": mf.ClickModel, "estimators": mf.Estimator, "metrics": mf.Metric}
PAIRS = {
    "policies": (Overdue(), PlainOverdue()),
    "clicks": (Eager(), PlainEager()),
    "estimators": (Smoothed(), PlainSmoothed()),
    "metrics": (Peak(), PlainPeak()),
}
PARSERS = {
    "policies": mf.parse_policy,
    "clicks": mf.parse_click_model,
    "estimators": mf.parse_estimator,
    "metrics": mf.parse_metric,
}
OPTION = {"policies": "policy", "clicks": "clicks", "estimators": "estimator", "metrics": "metrics"}


def run(data, *parts, mode="online", steps=300, **options):
    """Simulate with these parts and defaults for the other kinds."""
    chosen = {"policy": "MCFair"}
    for part in parts:
        kind = next(kind for kind, base in BASES.items() if isinstance(part, base))
        chosen[OPTION[kind]] = (part,) if kind == "metrics" else part
    return mf.simulate(data, chosen.pop("policy"), mode, steps=steps, record=True, **chosen, **options)
