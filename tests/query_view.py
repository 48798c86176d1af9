"""Views of one query for tests that call a policy by itself."""

import naive
import numpy as np

from mcfair.state import Query


def view(R, *, E=None, F=None, p=None, k=None, visits=0, providers=None, prior_strength=0.0, posterior=None, memory=()):
    """A view in which nothing was shown yet, except for what is given; p is the paper's for k ranks."""
    R = np.asarray(R, float)
    n = R.size
    p = naive.examination(n if k is None else k) if p is None else np.asarray(p, float)
    F = np.zeros((n, p.size), np.int32) if F is None else np.asarray(F, np.int32)
    E = np.array([naive.exposure(row, p) for row in F]) if E is None else np.asarray(E, float)
    return Query(
        R=R,
        uncertainty=naive.uncertainty(E, prior_strength),
        E=E,
        F=F,
        p=p,
        visits=np.array(visits),
        providers=np.arange(n) if providers is None else np.asarray(providers, np.int64),
        prior_strength=prior_strength,
        posterior=np.zeros((n, 0, 3)) if posterior is None else np.asarray(posterior, float),
        memory=np.asarray(memory, float),
    )
