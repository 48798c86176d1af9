"""With simulated users the service reproduces the simulator to the bit, as a library and over HTTP."""

import numpy as np
import pytest
from service_process import ServerProcess, mcfair

import mcfair as mf
from mcfair.random import CLICKS, draws, uniform
from mcfair.service.client import Client
from mcfair.service.ranker import Ranker
from mcfair.users.arrivals import arrivals


@mf.kernel
def perturbed_score(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.R[d] + theta[0] * uniform(rng, d)


class Perturbed(mf.Policy):
    """Rank by relevance plus noise: a score that draws."""

    noise: float = 1.0

    kernel = perturbed_score


class PlainPerturbed(mf.Policy):
    """The same in plain Python."""

    noise: float = 1.0

    def score(self, q, rng):
        return np.array([q.R[d] + self.noise * uniform(rng, d) for d in range(q.R.size)])


@pytest.fixture(autouse=True)
def policies_that_draw(registries):
    mf.register(Perturbed)
    mf.register(PlainPerturbed)


POLICIES = [
    "Perturbed(noise=0.7)",
    "PlainPerturbed(noise=0.7)",
    "MCFair",
    "MCFair(alpha=1, beta=100)",
    "MCFair(alpha=10, beta=5, scale=mean, ties=random)",
    "MCFair(alpha=1, beta=3, guard=0.93)",
    "PlainPerturbed(noise=0.7, guard=0.8)",
    "MCFair(alpha=1, beta=3, alpha_group=2)",
    "PlainPerturbed(noise=0.7, alpha_group=2, guard=0.8)",
    "FairCo(alpha=1, beta=10)",
    "MMF(alpha=0.8)",
    "TopK(ties=least-exposed)",
    "RandomK",
]


def simulated_run(policy, sessions, **changes):
    """Simulate a run whose random draws are keyed by the query numbers that the service will assign."""
    base = mf.synthetic("mq2008-like", seed=3).take(range(6))
    stream = arrivals("uniform", sessions, base.queries, seed=7)
    order = list(dict.fromkeys(stream.tolist()))
    places = [1 + order.index(q) if q in order else 100 + q for q in range(base.queries)]
    groups = [f"provider {d % 3}" if d % 4 else "" for n in base.sizes for d in range(n)]
    data = mf.Dataset(offsets=base.offsets, y=base.y, R=base.R, y_max=base.y_max, places=places, providers=groups)
    trace = mf.simulate(data, policy, "online", steps=sessions, seed=7, record=True, **changes)
    assert np.array_equal(trace.arrivals, stream)
    return data, stream, trace


def serve_users(service, data, stream, trace, prior=None):
    """Replay the sessions of a run against a service, and compare every list."""
    p = trace.state.p
    visits = np.zeros(data.queries, int)
    for t, q in enumerate(stream.tolist()):
        R = data.R[data.offsets[q] : data.offsets[q + 1]]
        groups = [
            data.provider_name(code) or None for code in data.providers[data.offsets[q] : data.offsets[q + 1]].tolist()
        ]
        extra = {} if prior is None else {"prior": prior}
        items = [{"id": str(d), "group": group, **extra} for d, group in enumerate(groups)]
        answer = service.rank(f"query {q}", items, k=p.size)
        shown = [int(item.id) for item in answer.items]
        assert shown == trace.lists[t, : len(shown)].tolist(), f"session {t}"
        user = draws(7, CLICKS, query=int(data.places[q]), visit=int(visits[q]))
        clicks = mf.PositionBased().clicks(np.array(shown), R, p, user)
        hits = [d for d, clicked in zip(shown, clicks, strict=True) if clicked]
        if hits:
            events = [{"impression": answer.impression, "item": str(d)} for d in hits]
            assert all(result.status == "applied" for result in service.feedback(events))
        visits[q] += 1


def check_counters(service, data, trace):
    """Compare the final state of the service with that of the simulator."""
    R = trace.state.estimate()
    for q in np.flatnonzero(trace.state.visits):
        rows = slice(data.offsets[q], data.offsets[q + 1])
        state = service.query_state(f"query {q}")
        assert state.visits == trace.state.visits[q]
        assert [item.exposure for item in state.items] == trace.state.E[rows].tolist()
        assert [item.clicks for item in state.items] == trace.state.C[rows].tolist()
        assert [item.relevance for item in state.items] == R[rows].tolist()
        assert state.unfairness == mf.unfairness(trace.state.E[rows], R[rows])


@pytest.mark.parametrize("policy", POLICIES)
def test_library_reproduces_the_simulator(policy):
    data, stream, trace = simulated_run(policy, 600)
    with Ranker("memory:", policy=policy, seed=7) as ranker:
        serve_users(ranker, data, stream, trace)
        check_counters(ranker, data, trace)


def test_priors_reproduce_the_simulator():
    data, stream, trace = simulated_run(
        "MCFair(beta=20)", 400, estimator="IPS(prior_mean=0.3, prior_strength=2.5)", k=3
    )
    rules = {"policy": "MCFair(beta=20)", "seed": 7, "prior_strength": 2.5, "prior_certainty": 2.5}
    with Ranker("memory:", **rules) as ranker:
        serve_users(ranker, data, stream, trace, prior=0.3)
    with Ranker("memory:", prior_mean=0.3, **rules) as ranker:
        serve_users(ranker, data, stream, trace)


def test_severity_reproduces_the_simulator():
    data, stream, trace = simulated_run("MCFair(beta=20)", 400, examination=0.5)
    with Ranker("memory:", policy="MCFair(beta=20)", seed=7, examination=0.5) as ranker:
        serve_users(ranker, data, stream, trace)


def test_http_service_reproduces_the_simulator(tmp_path):
    policy = "MCFair(alpha=1, beta=100, ties=random)"
    data, stream, trace = simulated_run(policy, 250)
    with ServerProcess(tmp_path / "store.db", "--policy", policy, "--seed", "7") as server:
        with Client(f"http://127.0.0.1:{server.ready().port}", rank_deadline=30.0) as client:
            serve_users(client, data, stream, trace)
            check_counters(client, data, trace)
        assert server.terminate() == 0
    replayed = mcfair("replay", "--store", tmp_path / "store.db")
    assert "250 lists: all reproduced" in replayed.stdout
