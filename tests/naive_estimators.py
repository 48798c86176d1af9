"""Pooled estimators the slow and obvious way: one item and one component at a time, straight from the equations."""

import math

import naive


def start(K):
    """Weight, mean and variance of each component before anything was observed."""
    return [(1 / K, 0.03 * (0.9999 / 0.03) ** (k / max(K - 1, 1)), 0.003) for k in range(K)]


def log_likelihood(C, misses, examined, r):
    return (C * math.log(r) if C else 0.0) + (misses * math.log(1 - examined * r) if misses else 0.0)


def components(C, F, p, prior):
    """ℓ_k, m_k, s²_k and φ_k of one item for every component of the prior."""
    E = naive.exposure(F, p)
    examined = sum(f * x**2 for f, x in zip(F, p, strict=True)) / E
    misses = max(E / examined - C, 0.0)
    saturated = log_likelihood(C, misses, examined, min(C / E, 1.0))
    out = []
    for w, r, tau2 in prior:
        v = r * (1 - examined * r)
        phi = 1 + E * tau2 / v
        fit = min(log_likelihood(C, misses, examined, r) - saturated, 0.0)
        mean = min((C * tau2 + v * r) / (E * tau2 + v), 1.0)
        out.append((fit / phi - math.log(phi) / 2 + math.log(w), mean, v * tau2 / (E * tau2 + v), phi))
    return out


def shares(logs):
    top = max(logs)
    weights = [math.exp(each - top) for each in logs]
    return [each / sum(weights) for each in weights]


def posterior(C, F, p, prior):
    """(weight, mean, variance) of every component of the posterior, by falling mean."""
    if naive.exposure(F, p) == 0:
        return sorted(prior, key=lambda each: -each[1])
    parts = components(C, F, p, prior)
    weights = shares([each[0] for each in parts])
    rows = [(pi, mean, s2) for pi, (_, mean, s2, _) in zip(weights, parts, strict=True)]
    return sorted(rows, key=lambda each: -each[1])


def moments(rows):
    """Mean and variance of a mixture."""
    mean = sum(w * m for w, m, _ in rows)
    return mean, sum(w * (s2 + (m - mean) ** 2) for w, m, s2 in rows)


def em(C, F, p, K, iterations=30):
    """The prior after EM on the items that were shown, from the start prior."""
    prior = start(K)
    items = [(c, f) for c, f in zip(C, F, strict=True) if naive.exposure(f, p) > 0]
    for _ in range(iterations):
        parts = [components(c, f, p, prior) for c, f in items]
        pis = [shares([each[0] for each in part]) for part in parts]
        new = []
        for k, (_, r, _) in enumerate(prior):
            clicks = exposure = spread = 0.0
            members = sum(pi[k] for pi in pis)
            for (c, f), part, pi in zip(items, parts, pis, strict=True):
                E, (_, mean, s2, phi) = naive.exposure(f, p), part[k]
                u = E / phi
                clicks += pi[k] * u * c / E
                exposure += pi[k] * u
                spread += pi[k] * ((mean - r) ** 2 + s2)
            mean = min(max((clicks + 0.03) / (exposure + 0.1), 0.002), 0.9999)
            new.append((members + 0.1, mean, max((spread + 1e-7) / (members + 1e-3), 1e-8)))
        total = sum(w for w, _, _ in new)
        prior = [(w / total, r, tau2) for w, r, tau2 in new]
    return prior


def prior_likelihood(C, F, p, prior):
    """Log-likelihood of the clicks under a prior, as EM sees it."""
    total = 0.0
    for c, f in zip(C, F, strict=True):
        logs = [each[0] for each in components(c, f, p, prior)]
        total += max(logs) + math.log(sum(math.exp(each - max(logs)) for each in logs))
    return total


def beta_moments(C, F, p, iterations=20):
    """Mean and strength of a Beta prior by weighted moments."""
    items = [(c, naive.exposure(f, p), f) for c, f in zip(C, F, strict=True) if naive.exposure(f, p) > 0]
    m, tau2 = 0.5, 1 / 12
    for _ in range(iterations):
        examined = [sum(n * x**2 for n, x in zip(f, p, strict=True)) / E for _, E, f in items]
        noise = [(m - e * m**2) / E for e, (_, E, _) in zip(examined, items, strict=True)]
        omega = [tau2 / (tau2 + each) for each in noise]
        m = sum(w * c / E for w, (c, E, _) in zip(omega, items, strict=True)) / sum(omega)
        m, total = min(max(m, 0.001), 0.999), sum(omega)
        noise = [(m - e * m**2) / E for e, (_, E, _) in zip(examined, items, strict=True)]
        omega = [tau2 / (tau2 + each) for each in noise]
        spread = sum(w * (c / E - m) ** 2 for w, (c, E, _) in zip(omega, items, strict=True))
        parts = [w * (1 - w / total) for w in omega]
        expected = sum(part * each for part, each in zip(parts, noise, strict=True))
        information = sum(part * (1 - e / E) for part, e, (_, E, _) in zip(parts, examined, items, strict=True))
        tau2 = (spread - expected) / information if information > 0 else 1 / 12
        tau2 = min(max(tau2, 1e-4 * m * (1 - m)), 0.99 * m * (1 - m))
    return m, m * (1 - m) / tau2 - 1


def moments_of_fits(queries, sessions):
    """Sessions after which a pooled estimator is fitted: grown by 30 % and by one per query."""
    out, last = [], 0
    for t in range(1, sessions):
        if t - last >= queries and t >= 1.3 * last:
            out.append(t)
            last = t
    return out


# --- the policy that ranks by them -----------------------------------------------------------------------------------


def tail_mean(rows, mass):
    """Mean of the upper tail of a posterior by the means of its components (weight, mean, variance)."""
    total, left = 0.0, mass
    for weight, mean, _ in sorted(rows, key=lambda each: -each[1]):
        part = min(weight, left)
        total += part * mean
        left -= part
    return (total + left * min(mean for _, mean, _ in rows)) / mass


def bayesfair(policy, R, E, p, visits, posterior, prior_strength=0.0):
    """U/ideal + α B, with β MC where it is asked for; `posterior` has the components of each item, or none."""
    n = len(R)
    mass = min(policy.tail / visits, 1.0) if visits else 1.0
    ideal = sum(a * r for a, r in zip(p, sorted(R, reverse=True), strict=False)) if policy.gain == "ndcg" else 1.0
    exposed = visits * sum(p[:n]) / n
    B = naive.scaled(naive.gradient(E, R), policy.scale, visits) * (1 + (policy.early / exposed) ** 2 if visits else 1)
    out = []
    for d in range(n):
        U = max(tail_mean(posterior[d], mass), R[d]) if len(posterior[d]) and mass < 1.0 else R[d]
        certainty = 1 / max((E[d] + prior_strength) ** 2, policy.mc_floor) if policy.beta else 0.0
        out.append(U / (ideal if ideal > 0 else 1.0) + policy.alpha * B[d] + policy.beta * certainty)
    return out
