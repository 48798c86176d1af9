"""Policies of single requests: no versions, bounded memory, and nothing left behind by a refused one."""

import json
import threading
import time

import msgspec
import numpy as np
import pytest
from observing import observed
from serving import serving

import mcfair as mf
from mcfair.errors import PolicyError, RequestError
from mcfair.service.core.engine import Engine
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import PolicyChange, RawRankRequest


@pytest.fixture
def engine():
    made = Engine(SQLiteStore(None))
    yield made
    made.store.close()


def request(policy=None, items="abc", query="q", **options):
    raw = msgspec.Raw(msgspec.json.encode([{"id": item} for item in items]))
    return RawRankRequest(query=query, items=raw, k=2, policy=policy, **options)


def test_policies_of_requests_create_no_versions_and_cost_bounded_memory(engine):
    for alpha in range(500):
        answer = engine.rank(request(f"MCFair(alpha={alpha})"))
        assert (answer.version, answer.policy) == (1, repr(mf.MCFair(alpha=float(alpha))))
    assert len(engine.repository.versions) == 1
    assert engine.repository.named_policies.nbytes < 3_000_000
    assert engine.change(PolicyChange(policy="TopK")).version == 2
    assert verify(engine.store) == []
    assert replay(engine.store) == (1, 500, [])


def test_spellings_of_one_policy_share_a_place_in_the_cache(engine):
    for text in ("MCFair(alpha=2)", "MCFair( alpha = 2.0 )", " MCFair(alpha=2e0)", "MCFair(beta='auto', alpha=2)"):
        assert engine.rank(request(text)).policy == repr(mf.MCFair(alpha=2.0))
        assert engine.repository.with_policy(engine.version, text) is engine.repository.with_policy(
            engine.version, "MCFair(alpha=2.0)"
        )


ODD = [
    "", " ", "MCFair(alpha=nan)", "MCFair(alpha=1e400, beta=-1e400)", f"MCFair(alpha={10**400})", "MCFair(alpha=-1)",
    "(" * 900, "[" * 900, "MCFair(alpha=" + "(" * 400 + "1" + ")" * 400 + ")", "-" * 900 + "1", "MCFair" * 5000,
    "\uff2d\uff23Fair(alpha=\uff11)", "\ud800", "\x00", "MCFair(alpha='\ud800')", "MCFair(alpha=1j)",
    "MCFair(alpha=[1, 2])", "MCFair(alpha=True)", "MCFair(alpha=None)", "MCFair(ties=[])", "MCFair(**{})",
    "MCFair(alpha=lambda: 1)", "MCFair(alpha=" + "9" * 900 + ")", "MCFair(alpha=1)(2)", "os.system('x')",
    "ILP", "LP", "RandomK(seed=1)", "MCFair(alpha={[]})", "MCFair(alpha={[]: 1})", "MCFair(alpha={1: []})",
    "MCFair(alpha=" + "[" * 60 + "]" * 60 + ")", "MCFair(alpha=" + "{" * 480 + "}" * 480 + ")",
    "MCFair(alpha=" + "a." * 480 + "b)", "MCFair(alpha=" + "1+" * 480 + "1)", "MCFair(alpha=0x" + "f" * 900 + ")",
    "MCFair(alpha=10**10**10)", "MCFair(alpha=-{})", "MCFair(alpha=f'{1}')", "MCFair(alpha=(yield))", "MCFair(self=1)",
    "MCFair(alpha='\\ud800')", "MCFair(ties='\\ud800')", "MCFair(ties={[]})", "MCFair(cls=1, __class__=2)",
    "MCFair@" + "9" * 500,
]  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:30])
def test_odd_policies_are_refused_and_leave_nothing_behind(engine, text):
    engine.rank(request())
    ledger, before = engine.ledgers[1], observed(engine, "q")
    for query in ("q", "new"):
        with pytest.raises(RequestError) as refusal:
            engine.rank(request(text, items="abcd", query=query))
        assert refusal.value.field == "policy"
    assert engine.ledgers[1] is ledger
    assert observed(engine, "q") == before
    assert engine.store.usage().queries == 1
    assert engine.store.number("SELECT count(*) FROM items") == 3
    assert not engine.repository.named_policies.nbytes
    with pytest.raises(RequestError):
        engine.change(PolicyChange(policy=text))
    assert len(engine.repository.versions) == 1


@pytest.fixture(scope="module")
def client():
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as client:
        yield client


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:30])
def test_odd_policies_are_refused_over_http(client, text):
    arms = [{"name": "a", "policy": text, "share": 0.1}]
    for send, path, body in (
        (client.post, "rank", {"query": "q", "items": [{"id": "a"}, {"id": "b"}], "policy": text}),
        (client.put, "policy", {"policy": text}),
        (client.put, "policy", {"estimator": text.replace("MCFair", "Mixture")}),
        (client.put, "policy", {"experiment": {"name": "e", "arms": arms}}),
        (client.post, "compare", {"policies": [text]}),
    ):
        answer = send(f"/v1/{path}", content=json.dumps(body), headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text


SLOW = (
    """
@mf.register
class {name}(mf.Policy):
    weight: float = 1.0
    @staticmethod
    @mf.kernel
    def kernel(q, theta, rng, out):
        out[:] = q.R * theta[0]
"""
    + 10
    * """
        for i in range(q.R.size):
            out[i] += np.exp(q.R[i] - theta[0]) + np.log1p(q.E[i]) * np.sin(q.R[i])
"""
)


@pytest.mark.parametrize("naming", ["a request", "the rules", "an arm"])
def test_only_the_request_that_names_a_policy_waits_until_it_is_compiled(registries, naming):
    name = "Slow" + naming.title().replace(" ", "")
    exec(SLOW.format(name=name), {"mf": mf, "np": np})
    with Ranker("memory:", summary_interval=0.0) as ranker:
        ranker.rank("q", list("abc"))
        done, waits = threading.Event(), []

        def others():
            while not done.is_set():
                begun = time.perf_counter()
                ranker.rank("other", list("abc"))
                waits.append(time.perf_counter() - begun)

        thread = threading.Thread(target=others)
        thread.start()
        begun = time.perf_counter()
        if naming == "a request":
            assert ranker.rank("q", list("abc"), policy=name).policy == f"{name}(weight=1.0)"
        elif naming == "the rules":
            ranker.change_policy(policy=name)
        else:
            ranker.change_policy(experiment={"name": "e", "arms": [{"name": "a", "policy": name, "share": 0.5}]})
        took = time.perf_counter() - begun
        done.set()
        thread.join()
        assert took > 0.5
        assert max(waits) < took / 2
        assert len(waits) > 10
        begun = time.perf_counter()
        ranker.rank("new", list("abc"), policy=name)
        assert time.perf_counter() - begun < took / 2


def test_a_policy_that_does_not_compile_is_refused_and_others_are_served(registries):
    @mf.register
    class DoesNotCompile(mf.Policy):
        @staticmethod
        @mf.kernel
        def kernel(q, theta, rng, out):
            out[:] = q.nothing

    with Ranker("memory:", summary_interval=0.0) as ranker:
        for _ in range(2):
            with pytest.raises(PolicyError, match="does not compile"):
                ranker.rank("q", list("abc"), policy="DoesNotCompile")
            with pytest.raises(PolicyError, match="does not compile"):
                ranker.change_policy(policy="DoesNotCompile")
        assert ranker.policy().version == 1
        assert ranker.usage().queries == 0
        assert len(ranker.rank("q", list("abc")).items) == 3


def test_a_policy_that_fails_leaves_the_cached_ledger_as_it_was(engine, registries):
    @mf.register
    class Fails(mf.Policy):
        """Fail always."""

        def score(self, q, rng):
            raise ZeroDivisionError("oops")

    engine.change(PolicyChange(newcomer_exposure="fair"))
    for _ in range(3):
        engine.rank(request())
    ledger, before = engine.ledgers[1], observed(engine, "q")
    snapshot = msgspec.msgpack.encode(ledger.snapshot())
    raw = msgspec.Raw(b'[{"id": "a", "prior": 0.5, "group": "G"}, {"id": "new"}]')
    for query in ("q", "other"):
        with pytest.raises(PolicyError, match="oops"):
            engine.rank(RawRankRequest(query=query, items=raw, k=2, policy="Fails"))
    assert engine.ledgers[1] is ledger
    assert observed(engine, "q") == before
    assert msgspec.msgpack.encode(ledger.snapshot()) == snapshot
    assert not np.any(ledger.newcomers.weighted)
    assert engine.store.usage().queries == 1
    engine.rank(request(items="abcd"))
    assert verify(engine.store) == []
    assert replay(engine.store)[2] == []
