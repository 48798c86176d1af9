import itertools

import naive
import naive_estimators
import naive_limits
import numpy as np
import pytest
import real_data
from same_runs import same

import mcfair as mf
from mcfair.policies.budgetfair import plan_losses, price_of
from mcfair.service.core.rules import check_servable


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


def losses_at(R, p, offsets, prices):
    """NDCG that the plans of all queries give up at falling prices."""
    falling = np.concatenate([np.sort(R[a:b])[::-1] for a, b in itertools.pairwise(offsets)])
    out = np.full((len(prices), len(offsets) - 1), np.nan)
    plan_losses(falling, p, offsets, np.array(prices), out)
    return out


# --- the price -------------------------------------------------------------------------------------------------------


def test_plans_give_up_what_the_best_mixtures_of_lists_give_up():
    """Against a general method that knows nothing but the corners."""
    rng, prices = np.random.default_rng(0), [1e4, 100.0, 5.0, 0.5]
    sizes, p = [2, 4, 6, 9], naive.examination(3)
    R = np.concatenate([rng.choice([0.1, 0.4, 1.0], n) + 0.1 * rng.random(n) for n in sizes])
    offsets = np.cumsum([0, *sizes])
    losses = losses_at(R, p, offsets, prices)
    assert (np.diff(losses, axis=0) <= 1e-12).all()
    for q, n in enumerate(sizes):
        r, w = R[offsets[q] : offsets[q + 1]], np.append(p, np.zeros(n))[:n]
        ideal = w @ np.sort(r)[::-1]
        for i, price in enumerate(prices):
            _, _, E = naive_limits.pairwise_frank_wolfe(r, naive_limits.sort_oracle(w), 1 / (price * ideal))
            assert losses[i, q] == pytest.approx(1 - r @ E / ideal, abs=1e-5)


def test_queries_that_have_nothing_to_choose_give_up_nothing():
    R, offsets = np.array([0.5, 0.0, 0.0, 0.3, 0.3, 0.3]), np.array([0, 1, 3, 6])
    assert losses_at(R, naive.examination(2), offsets, [1e5, 1.0]) == pytest.approx(0.0, abs=1e-12)


def test_at_its_price_the_plans_give_up_the_loss(data):
    p = naive.examination(5)
    for loss in (0.003, 0.01, 0.03):
        price = price_of(loss, data.R, p, data.offsets)
        chosen = np.linspace(0, data.queries - 1, 64).astype(int)
        assert losses_at(data.R, p, data.offsets, [price])[0, chosen].mean() == pytest.approx(loss, rel=0.03)
    assert price_of(0.0, data.R, p, data.offsets) == 0.0
    assert price_of(1.0, data.R, p, data.offsets) == 1e5


@pytest.mark.parametrize("level", [0.5, 0.01, 0.0001])
def test_the_price_follows_the_level_of_relevance(data, level):
    """Unfairness is of second order in relevance: the same plans at a hundredth of it need 10,000 times the price."""
    p = naive.examination(5)
    for loss in (0.003, 0.05, 1.0):
        expected = price_of(loss, data.R, p, data.offsets) / level**2
        assert price_of(loss, level * data.R, p, data.offsets) == pytest.approx(expected, rel=1e-6)
    assert price_of(0.05, 0.0 * data.R, p, data.offsets) > 0.0


# --- runs ------------------------------------------------------------------------------------------------------------


def test_it_is_bayesfair_at_the_price(data):
    price = price_of(0.02, data.R, naive.examination(5), data.offsets)
    runs = [mf.simulate(data, each, steps=3000) for each in (mf.BudgetFair(loss=0.02), mf.BayesFair(alpha=price))]
    assert same(*runs)


def test_online_every_list_is_the_ranking_at_the_price_of_the_last_fit(data):
    """Rebuilt from the lists and clicks before each session: at every fit the price is solved from the estimates."""
    few, p = data.take([3, 10, 20, 40]), naive.examination(5)
    policy = mf.BudgetFair(loss=0.03, tail=3)
    trace = mf.simulate(few, policy, "online", steps=160, seed=2, record=True)
    F, C, visits = np.zeros((few.items, 5), int), np.zeros(few.items, int), np.zeros(few.queries, int)
    prior, moments = naive_estimators.start(4), naive_estimators.moments_of_fits(4, 160)
    (at_first, _), prices = naive_estimators.moments(naive_estimators.posterior(0, F[0], p, prior)), []
    for t, q in enumerate(trace.arrivals):
        if t in moments:
            prior = naive_estimators.em(C, F, p, 4)
        if t in (0, *moments):
            posteriors = [naive_estimators.posterior(C[d], F[d], p, prior) for d in range(few.items)]
            estimates = np.array([naive_estimators.moments(each)[0] for each in posteriors])
            prices.append(price_of(policy.loss, estimates, p, few.offsets))
        items = range(few.offsets[q], few.offsets[q + 1])
        posterior = [naive_estimators.posterior(C[d], F[d], p, prior) for d in items]
        R, E = [naive_estimators.moments(each)[0] for each in posterior], [naive.exposure(F[d], p) for d in items]
        same_price = mf.BayesFair(alpha=prices[-1], tail=3)
        scores = naive_estimators.bayesfair(same_price, R, E, p, visits[q], posterior)
        pi = trace.lists[t].tolist()
        assert naive.is_ranking(pi, scores, 5, tolerance=1e-6 * max(map(abs, scores))), (t, q)
        for j, d in enumerate(pi):
            F[items[d], j] += 1
            C[items[d]] += trace.clicks[t, j]
        visits[q] += 1
    assert prices[0] == pytest.approx(1e5 / at_first**2)  # nothing is known, so that fairness costs nothing
    assert len(set(prices)) > 5


@pytest.mark.parametrize("loss", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("name", ["mq2008-like", "istella-s-like"])
def test_with_relevance_given_a_run_gives_up_the_loss(name, loss):
    """On lists of ten and of a hundred items, whose prices are far apart."""
    profile = mf.synthetic(name, seed=1)
    few = profile.take(range(40))
    trace = mf.simulate(few, mf.BudgetFair(loss=loss), steps=500 * few.queries)
    assert 1 - trace.ndcg[5] == pytest.approx(loss, abs=0.0035)


@real_data.needs_mq2008
@pytest.mark.parametrize("fold", [1, 4])
def test_on_mq2008_a_run_gives_up_the_loss(fold):
    few = mf.load_fold(real_data.FOLDS / f"Fold{fold}", preset="wsdm23")
    trace = mf.simulate(few, mf.BudgetFair(loss=0.02), steps=50_000)
    assert 1 - trace.ndcg[5] == pytest.approx(0.02, abs=0.0025)


def test_more_loss_is_fairer_online(data):
    traces = [mf.simulate(data, mf.BudgetFair(loss=each), "online", steps=20_000) for each in (0, 0.005, 0.02)]
    unfairness = [each.unfairness for each in traces]
    assert unfairness == sorted(unfairness, reverse=True)
    ndcg = [each.ndcg[5] for each in traces]
    assert ndcg == sorted(ndcg, reverse=True)


def test_the_service_refuses_it_and_names_the_reason():
    with pytest.raises(mf.PolicyError, match="BudgetFair cannot serve: it prepares on a dataset"):
        check_servable(mf.BudgetFair())
