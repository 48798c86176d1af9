"""The queries of a store as data for a rehearsal: items, groups, visits, and a relevance that the clicks allow."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import StoreError
from ..random import DATA, draws, uniforms
from .core.ledger import Ledger
from .core.reports import observed_state
from .core.repository import LedgerRepository
from .core.rules import Rules
from .stores import describe, open_reader


def read_queries(store: str, seed: int = 0) -> tuple[Dataset, FloatArray, Rules]:
    """Read the queries of a store: items and groups, relevance, visits, and the rules in force.

    The true relevance is not known. It is drawn from its posterior distribution given the clicks of the store, and the
    estimates are the priors: the application then knows as much as it would after this store, and not the truth.

    Parameters
    ----------
    store
        Where the store is, as `Ranker` takes it; a server may be running.
    seed
        Seed of the draw.

    Returns
    -------
    data
        The queries by their ids; R is drawn, the scores are the estimates, at most 1.
    visits : (queries,) array
        Visits of each query.
    rules
        The rules in force.

    Raises
    ------
    StoreError
        If the store cannot be read or has no queries.
    """
    found: list[tuple[Ledger, IntArray, FloatArray, FloatArray]] = []
    with open_reader(store) as reader:
        repository = LedgerRepository(reader)
        version = repository.in_force
        for ledger in repository.all_ledgers():
            rows, E, R, _ = observed_state(ledger, version, ledger.time)
            if ledger.visits and rows.size:
                prior = np.where(np.isnan(ledger.priors[rows]), version.rules.prior_mean is not None, True)
                found.append((ledger, rows, np.minimum(R, 1.0), posterior(E, R, prior * version.rules.prior_strength)))
    if not found:
        raise StoreError(f"{describe(store)} has no queries that were ranked: rehearse on a table with --data")
    estimates, shapes = (np.concatenate(each, axis=-1) for each in list(zip(*found, strict=True))[2:])
    R = betaincinv(*shapes, uniforms(draws(seed, DATA), estimates.size))
    groups = [ledger.groups[row] for ledger, rows, *_ in found for row in rows.tolist()]
    data = Dataset(
        offsets=np.cumsum([0, *(rows.size for _, rows, *_ in found)]),
        y=R > 0,
        y_max=1,
        R=R,
        scores=estimates,
        providers=groups if any(groups) else None,
        query_ids=[ledger.key.hex() for ledger, *_ in found],
        name=describe(store),
    )
    return data, np.array([float(ledger.visits) for ledger, *_ in found]), version.rules


def posterior(E: FloatArray, R: FloatArray, strength: FloatArray) -> FloatArray:
    """Return the parameters a and b of the beta distribution of each relevance, as two rows.

    An estimate R = (C + s·m)/(E + s) is the mean of Beta(C + s·m, E - C + s·(1 - m)). Without a prior, s = 0, the
    distribution before the first view is uniform.
    """
    views = E + strength
    hits = np.minimum(R, 1.0) * views + (strength == 0.0)
    return np.maximum([hits, views + 2.0 * (strength == 0.0) - hits], 1e-3)
