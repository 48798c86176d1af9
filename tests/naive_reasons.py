"""The claims of a reason in words, read from its text and compared with the numbers of the decision, one by one."""

import re
from dataclasses import replace

import numpy as np

import mcfair as mf
from mcfair.policies.selection import choose

ORDINAL = r"(\d+)(st|nd|rd|th)"
HEADING = re.compile(
    r"Ranked (?P<rank>\d+)(?P<end>st|nd|rd|th)"
    r"|Not shown: it was ranked (?P<low>\d+)(?P<low_end>st|nd|rd|th), and the list has (?P<k>\d+) (?P<places>places?)"
    r"|Not shown: the policy chose (?P<chosen>\d+) (?P<others>other candidates?)"
)
SHARES = (
    r"(?P<subject>it|its group) has had (?P<had>[\d.]+) % of the views where its relevance earns (?P<earned>[\d.]+) %"
)
PASSED = r"(?P<passed>the candidate|the (?P<count>\d+) candidates) that (?P<verb>it overtook|overtook it)"


def equivalents(policy):
    """Return, for each part that a policy has, a policy that ranks as this one would without it."""
    name = policy.name()
    if name in ("MCFair", "FairCo", "DIDRF", "PrefixGreedy", "MMF", "Thompson"):
        found = {"fairness": (policy.alpha, replace(policy, alpha=0.0))}
        if name == "Thompson":
            found["exploration"] = (policy.mix, replace(policy, mix=0.0))
        else:
            found["exploration"] = (policy.beta, replace(policy, beta=0.0))
    elif name == "BayesFair":
        found = {"fairness": (policy.alpha, replace(policy, alpha=0.0))}
        found["exploration"] = (1.0, replace(policy, tail=1e300, beta=0.0))
    elif name == "FairK":
        kept = mf.ExploreK(mc_floor=policy.mc_floor, ties=policy.ties) if policy.beta else Nothing(ties=policy.ties)
        found = {"fairness": (1.0, kept), "exploration": (policy.beta, replace(policy, beta=0.0))}
    elif name == "ExploreK":
        found = {"exploration": (1.0, Nothing(ties=policy.ties))}
    elif name in ("TopK", "PBMUCB"):
        found = {"exploration": (policy.beta, replace(policy, beta=0.0))}
    else:
        found = {}
    return {part: other for part, (weight, other) in found.items() if weight}


class Nothing(mf.Policy):
    """All candidates alike."""

    ties: str = "index"

    def score(self, q, rng):
        return np.zeros(q.R.size)


class Facts:
    """The facts of a decision, computed without the code that writes the reasons."""

    def __init__(self, policy, q, p, rng):
        self.policy, self.q, self.k, self.n = policy, q, p.size, q.R.size
        self.full, self.p, self.rng = q, p, rng
        if not policy.ranks:
            more = np.zeros(self.n - p.size)
            self.full = q._replace(p=np.append(q.p, more), F=np.hstack([q.F, np.zeros((self.n, more.size), np.int32)]))
            self.p = np.append(p, more)
        self.now, weight = self.places(policy)
        self.without = {part: self.places(other)[0] for part, other in equivalents(policy).items()}
        if weight:
            self.without["guard"] = self.places(replace(policy, guard=0.0))[0]
        keys = {"index": np.zeros(self.n), "least-exposed": q.E}.get(getattr(policy, "ties", "index"))
        if keys is None:
            self.alone = self.places(mf.TopK(ties="random"))[0]
        else:
            order = sorted(range(self.n), key=lambda d: (-q.R[d], keys[d], d))
            self.alone = [order.index(d) + 1 for d in range(self.n)]

    def places(self, policy):
        """Return the rank of each candidate, the one after the list if it is not in it, and the weight of the guard."""
        chosen = choose(policy, self.full, self.rng, p=self.p)
        pi = chosen.pi.tolist()
        return [pi.index(d) + 1 if d in pi else self.k + 1 for d in range(self.n)], chosen.weight

    def change(self, part, i):
        return abs(self.without[part][i] - self.now[i])


def expected_end(number):
    if number in range(4, 21) or number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def check_sentence(text, facts, i, basis="clicks"):
    """Assert that every claim of a sentence on candidate i is true, and that there is no claim but those known here."""
    n = facts.n
    assert text.endswith(".")
    assert "  " not in text
    for number, end in re.findall(ORDINAL, text):
        assert end == expected_end(int(number))
    if n == 1:
        assert text == "Ranked 1st: it is the only candidate."
        return "only"
    heading = HEADING.match(text)
    check_heading(heading, facts, i)
    body = text[heading.end() : -1]
    others = {part: facts.change(part, i) for part in facts.without}
    for form, check in FORMS.items():
        found = re.fullmatch(form.replace("BASIS", re.escape(basis)), body)
        if found:
            check(found, facts, i, others)
            return found.groupdict().get("part") or check.__name__
    raise AssertionError(f"no known claim: {body!r}")


def check_heading(heading, facts, i):
    assert heading, "the sentence has no heading"
    if heading["rank"]:
        assert int(heading["rank"]) == facts.now[i] <= facts.k
    elif heading["low"]:
        assert not facts.policy.ranks
        assert int(heading["low"]) == facts.now[i] > facts.k == int(heading["k"])
        assert heading["places"] == ("place" if facts.k == 1 else "places")
    else:
        assert facts.policy.ranks
        assert facts.now[i] == facts.k + 1
        assert int(heading["chosen"]) == facts.k
        assert heading["others"] == ("other candidate" if facts.k == 1 else "other candidates")


def check_otherwise(found, facts, i, part):
    """The rank without the part, or by relevance alone; no other part changes the rank more."""
    then, now = facts.without[part][i], facts.now[i]
    if found["alone"]:
        assert int(found["alone"]) == facts.alone[i] == then
    elif found["then"]:
        assert int(found["then"]) == then
    else:
        assert facts.policy.ranks
        assert then == facts.k + 1
    assert then != now
    assert facts.change(part, i) >= max(facts.change(each, i) for each in facts.without if not is_even(facts, each))
    assert not is_even(facts, part)
    return then > now


def is_even(facts, part):
    """A part that is the same for all candidates: here that of exploration before anything was shown."""
    q = facts.q
    alike = part == "exploration" and not q.E.any() and facts.policy.name() not in ("Thompson", "BayesFair")
    return alike and getattr(facts.policy, "explore", "mc") in ("mc", "none")


def passed_by(facts, i, part):
    now, then = facts.now, facts.without[part]
    if then[i] > now[i]:
        return [d for d in range(facts.n) if now[d] > now[i] and then[d] < then[i]]
    return [d for d in range(facts.n) if now[d] < now[i] and then[d] > then[i]]


def check_passed(found, passed, up):
    assert found["verb"] == ("it overtook" if up else "overtook it")
    assert len(passed) == int(found["count"] or 1)
    assert (found["count"] is None) == (len(passed) == 1)


def check_shares(found, facts, i):
    """The two shares, each within its rounding; return the sign of what was had too much."""
    E, R = facts.q.E, facts.q.R
    for name, values in (("had", E), ("earned", R)):
        digits = len(found[name].partition(".")[2])
        assert abs(float(found[name]) - 100 * values[i] / values.sum()) <= 0.5 * 10**-digits + 1e-9
        assert (float(found[name]) == 0) == (values[i] == 0) or digits == 3
    return np.sign(float(found["had"]) - float(found["earned"]))


def fairness(found, facts, i, others):
    up = check_otherwise(found, facts, i, "fairness")
    assert found["way"] == ("up" if up else "down")
    if found["had"] is None:
        assert found["how"] == "fairness moved it"
        assert not facts.q.E.any() or not facts.q.R.any()
        return
    sign = check_shares(found, facts, i)
    if found["joint"] == " because":
        assert sign == (-1 if up else 1)
        assert found["how"] == "it was moved"
    elif found["joint"] == " although":
        assert sign == (1 if up else -1)
    else:
        assert sign == 0
    if found["verb"]:
        passed = passed_by(facts, i, "fairness")
        check_passed(found, passed, up)
        assert found["than"] == ("more" if up else "less")
        assert found["have"] == ("has" if len(passed) == 1 else "have")
        assert found["their"] == ("its" if len(passed) == 1 else "their")
        E, R = facts.q.E, facts.q.R
        assert all((E[d] * R[i] > E[i] * R[d]) if up else (E[d] * R[i] < E[i] * R[d]) for d in passed)


def exploration(found, facts, i, others):
    up = check_otherwise(found, facts, i, "exploration")
    passed, E = passed_by(facts, i, "exploration"), facts.q.E
    if found["new"]:
        assert up
        assert E[i] == 0
    elif found["way"]:
        assert found["way"] == ("up" if up else "down")
    elif found["verb"]:
        assert up
        check_passed(found, passed, up)
        assert all(E[d] > E[i] for d in passed)
    else:
        assert not up
        assert int(found["tried"]) == len(passed)
        assert (found["noun"], found["have"], found["are"]) == (
            ("candidate", "has", "is") if len(passed) == 1 else ("candidates", "have", "are")
        )
        assert all(E[d] < E[i] for d in passed)


def guard(found, facts, i, others):
    up = check_otherwise(found, facts, i, "guard")
    assert found["way"] == ("up" if up else "down")
    assert float(found["share"]) == 100 * facts.policy.guard
    if found["verb"]:
        passed, R = passed_by(facts, i, "guard"), facts.q.R
        check_passed(found, passed, up)
        assert found["than"] == ("higher" if up else "lower")
        assert all(R[i] > R[d] if up else R[i] < R[d] for d in passed)


def unmoved(facts, i, others):
    assert all(change == 0 or is_even(facts, part) for part, change in others.items())


def no_terms(found, facts, i, others):
    assert not facts.without
    assert found["label"] == facts.policy.label
    assert int(found["alone"]) == facts.alone[i]


def by_relevance(found, facts, i, others):
    unmoved(facts, i, others)
    assert facts.now[i] == facts.alone[i]
    R = facts.q.R.tolist()
    higher, same = sum(r > R[i] for r in R), R.count(R[i]) - 1
    if found["all"]:
        assert same == facts.n - 1
    else:
        assert int(found["of"]) == facts.n
        assert (found["place"] or "1") == str(higher + 1)
        assert (found["place"] is None) == (higher == 0)
        assert int(found["same"] or 0) == same
        assert not same or found["have"] == ("other has" if same == 1 else "others have")
    check_tie(found, facts, i)


def check_tie(found, facts, i):
    scores = choose(facts.policy, facts.full, facts.rng, p=facts.p).scores
    tied = 0 if scores is None else scores.tolist().count(scores[i]) - 1
    rules = {
        "index": "equal scores keep the order of the request",
        "random": "the order of equal scores is drawn",
        "least-exposed": "of equal scores the one with the fewest views comes first",
    }
    if found["tie"]:
        assert tied > 0
        assert found["tie"] == rules[facts.policy.ties]
    return tied


def tied(found, facts, i, others):
    unmoved(facts, i, others)
    assert int(found["equal"]) == check_tie(found, facts, i)
    assert found["noun"] == ("candidate" if found["equal"] == "1" else "candidates")


def nothing_alone(found, facts, i, others):
    unmoved(facts, i, others)
    if found["alone"]:
        assert int(found["alone"]) == facts.alone[i]
    else:
        assert facts.alone[i] == facts.now[i]


def otherwise(part):
    return (
        rf"(?:By BASIS alone it would be (?P<alone>\d+)\w\w|Without {part} it would be (?P<then>\d+)\w\w"
        rf"|Without {part} it would not be in the list)"
    )


WAY = "(?P<way>up|down)"
TIE = r"(?:, and (?P<tie>[a-z ]+))?"
FORMS = {
    rf"\. {otherwise('fairness')}; (?P<how>it was moved|fairness moved it) {WAY}"
    rf"(?:(?P<joint> because| although|, and) {SHARES}"
    rf"(?:: {PASSED} (?P<have>has|have) had even (?P<than>more|less) for (?P<their>its|their) relevance)?)?": fairness,
    r"\. (?P<new>New: too little is known to rank it by BASIS, so it is being tried); "
    r"(?:by BASIS alone it would be (?P<alone>\d+)\w\w|without exploration it would be (?P<then>\d+)\w\w"
    r"|without exploration it would not be in the list)": exploration,
    rf"\. {otherwise('exploration')}; (?P<new>)(?:exploration moved it {WAY}"
    rf"|it was moved up to learn more about it: it has had fewer views than {PASSED}"
    r"|it was moved down because (?P<tried>\d+) (?P<noun>candidates?) that (?P<have>has|have) had fewer views "
    r"(?P<are>is|are) being tried ahead of it)": exploration,
    rf"\. {otherwise('the guard')}; the guard, which keeps at least (?P<share>[\d.]+) % of the relevance that a list "
    rf"can show, moved it {WAY}(?: because its estimated relevance is (?P<than>higher|lower) than that of {PASSED})?": (
        guard
    ),
    r"\. (?P<label>.+) has no terms to take apart; by BASIS alone it would be (?P<alone>\d+)\w\w": no_terms,
    r"(?:: i|\. I)ts estimated relevance is the (?:(?P<place>\d+)\w\w )?highest of (?P<of>\d+)"
    rf"(?:, (?P<same>\d+) (?P<have>other has|others have) the same)?{TIE}(?P<all>)": by_relevance,
    rf"(?:: a|\. A)(?P<all>ll candidates have the same estimated relevance){TIE}": by_relevance,
    r"\. Its score is equal to that of (?P<equal>\d+) other (?P<noun>candidates?), and (?P<tie>[a-z ]+)": tied,
    r"\. By BASIS alone it would have the same rank, and no part of the policy changes it by itself(?P<alone>)": (
        nothing_alone
    ),
    r"\. By BASIS alone it would be (?P<alone>\d+)\w\w; no part of the policy accounts for its place by itself": (
        nothing_alone
    ),
}
