"""The quoted figures of comparisons between policies: ties, BayesFair, and past the paper; see `quoting`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from quoting import quoted, results, table

from mcfair.report.formatting import NOTHING


def rounded(value: float | None, digits: int) -> str:
    """Return a number, or a dash if there is none."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def entries(board: str) -> dict[str, Any]:
    """Return the entries of a board of the leaderboard by name."""
    (found,) = (each for each in results("leaderboard")["boards"] if each["name"] == board)
    return {each["name"]: each for each in found["entries"]}


# --- ties ------------------------------------------------------------------------------------------------------------


@quoted("ties-table")
def ties_table() -> str:
    """Return unfairness and cNDCG@5 of each policy by its rule for ties."""
    rows = []
    for policy, rules in results("ties")["policies"].items():
        for rule, each in rules.items():
            unfair = f"{each['unfairness']['mean']:.2f} ({each['unfairness']['std']:.2f})"
            rows.append([f"`{policy}`", f"`{rule}`", unfair, f"{each['cndcg']['mean']:.1f}"])
    return table(["policy", "`ties`", "unfairness", "cNDCG@5"], rows)


# --- the leaderboard -------------------------------------------------------------------------------------------------


@quoted("past-the-paper")
def past_the_paper() -> str:
    """Return the comparison of BayesFair and MCFair in two sentences."""
    found = entries("frontier, online")
    volume = {name: f"{each['hypervolume']['mean']:.3f}" for name, each in found.items()}
    least = {name: f"{each['least_unfairness']['mean']:.2f}" for name, each in found.items()}
    return (
        "On the five folds of MQ2008 (100,000 sessions, five seeds) the frontier of BayesFair covers "
        f"{volume['BayesFair']} of what knowing the relevance would allow, MCFair's {volume['MCFair']} (by mean "
        f"{volume['MCFair, by mean']}); its least unfairness is {least['BayesFair']} floors, MCFair's "
        f"{least['MCFair']}."
    )


@quoted("leaderboard-table")
def leaderboard_table() -> str:
    """Return the figures of every policy online on MQ2008."""
    rows = []
    for name, each in entries("frontier, online").items():
        if name == "TopK":  # a point, far from everything that the table is about
            continue
        levels = [rounded(each["ndcg_at"][level]["mean"], 3) for level in ("1.1", "1.5", "2")]
        volume, least = each["hypervolume"]["mean"], each["least_unfairness"]["mean"]
        last = rounded(each["cndcg_at"]["1.5"]["mean"], 1)
        rows.append([name, f"{volume:.3f}", f"{least:.2f}", *levels, last])
    head = ["policy", "hypervolume", "least unfairness", "NDCG@5 at 1.1", "at 1.5", "at 2", "cNDCG@5 at 1.5"]
    return table(head, rows)


def differences(board: str, effect: str) -> Iterator[float]:
    """Yield by how much BayesFair is above MCFair, by max or by mean, at every level of every dataset they reach."""
    found = entries(board)
    for rival in ("MCFair", "MCFair, by mean"):
        for level, ours in found["BayesFair"][effect].items():
            for a, b in zip(ours["each"], found[rival][effect][level]["each"], strict=True):
                if a is not None and b is not None:
                    yield a - b


@quoted("leaderboard-least-gain")
def leaderboard_least_gain() -> str:
    """Return the least advantage of BayesFair in average NDCG@5."""
    return f"{min(differences('frontier, online', 'ndcg_at')):.3f}"


@quoted("leaderboard-fairer")
def leaderboard_fairer() -> str:
    """Return by how much the least unfairness of BayesFair is below that of MCFair, over folds."""
    found = entries("frontier, online")
    own = found["BayesFair"]["least_unfairness"]["each"]
    shares = [
        1 - a / b
        for rival in ("MCFair", "MCFair, by mean")
        for a, b in zip(own, found[rival]["least_unfairness"]["each"], strict=True)
    ]
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


@quoted("leaderboard-above-floor")
def leaderboard_above_floor() -> str:
    """Return how far the least unfairness of BayesFair is above the floor, on average over folds."""
    return f"{100 * (entries('frontier, online')['BayesFair']['least_unfairness']['mean'] - 1):.1f} %"


@quoted("leaderboard-behind")
def leaderboard_behind(where: str = "frontier") -> str:
    """Return by how much MCFair is ahead of BayesFair in cNDCG@5 at most."""
    board = {"frontier": "frontier, online", "istella": "frontier-long, online", "mslr": "frontier-also-1, online"}
    most = -min(differences(board[where], "cndcg_at"))
    return f"{most:.1f}" if where == "frontier" else f"{most:.0f}"


@quoted("leaderboard-long")
def leaderboard_long() -> str:
    """Return the hypervolumes on long lists in a sentence."""
    parts = []
    for name, board in (("the Istella-S profile", "frontier-long, online"), ("MSLR-WEB", "frontier-also-1, online")):
        found = entries(board)
        rivals = max(found[each]["hypervolume"]["mean"] for each in ("MCFair", "MCFair, by mean"))
        parts.append(
            f"{found['BayesFair']['hypervolume']['mean']:.2f} on {name}, where MCFair has {rivals:.2f} at best"
        )
    return "; ".join(parts)


@quoted("leaderboard-given")
def leaderboard_given() -> str:
    """Return how far BayesFair and MCFair by mean are apart where relevance is given."""
    found = entries("frontier, post-processing")
    pairs = zip(
        found["BayesFair"]["ndcg_at"].values(), found["MCFair, by mean"]["ndcg_at"].values(), strict=True
    )  # fmt: skip
    return f"{max(abs(a['mean'] - b['mean']) for a, b in pairs):.3f}"


@quoted("leaderboard-limit")
def leaderboard_limit(level: str) -> str:
    """Return how far MCFair by mean is below the frontier at a level of unfairness, where relevance is given."""
    (board,) = (each for each in results("leaderboard")["boards"] if each["name"] == "frontier, post-processing")
    reached = entries("frontier, post-processing")["MCFair, by mean"]["ndcg_at"][level]["mean"]
    return f"{board['limit']['ndcg_at'][level]['mean'] - reached:.3f}"


# --- a budget, and long lists ----------------------------------------------------------------------------------------


@quoted("budget-table")
def budget_table() -> str:
    """Return the NDCG that BudgetFair gives up."""
    found = results("past_the_paper")
    rows = []
    for mode, by_data in found["budgets"].items():
        for name, (none, *others) in by_data.items():
            rows.append([f"{mode}: {name}", *(f"{none - each:.3f}" for each in others)])
    return table(["`loss`", *(f"{each:g}" for each in found["losses"])], rows)


@quoted("budget-gap")
def budget_gap() -> str:
    """Return how far the NDCG given up is from the budget where relevance is given and as much can be given up."""
    found = results("past_the_paper")
    gaps = []
    for none, *others in found["budgets"]["post-processing"].values():
        most = max(none - each for each in others)  # what there is to give up
        gaps += [abs(none - each - loss) for each, loss in zip(others, found["losses"], strict=True) if loss <= most]
    return f"{max(gaps):.3f}"


@quoted("long-table")
def long_table() -> str:
    """Return unfairness, cNDCG@5 and average NDCG@5 on long lists."""
    found = results("past_the_paper")["long"]
    rows = []
    for policy in next(iter(found.values())):
        runs = [each[policy] for each in found.values()]
        cells = [f"{run['unfairness']:,.0f} / {run['cndcg']:.1f} / {run['ndcg']:.3f}" for run in runs]
        rows.append([f"`{policy}`", *cells])
    return table(["", *found], rows)


# --- BayesFair on built-in data --------------------------------------------------------------------------------------


def fairest(label: str) -> dict[str, float]:
    """Return the fairest point of a curve."""
    found: list[dict[str, float]] = results("bayesfair")["curves"][label]
    return min(found, key=lambda each: each["unfairness"])


def ndcg_at(label: str, level: float) -> float:
    """Return the average NDCG@5 of a curve at a level of unfairness, between its points."""
    points = sorted((each["unfairness"], each["ndcg"]) for each in results("bayesfair")["curves"][label])
    for (x, a), (y, b) in pairwise(points):
        if x <= level <= y:
            return a + (b - a) * (level - x) / (y - x)
    raise ValueError(f"{label} has no point on both sides of {level}")


@quoted("bayesfair-frontier")
def bayesfair_frontier() -> str:
    """Return what the picture of the frontiers shows, in two sentences."""
    found = results("bayesfair")
    above = {label: f"{100 * (fairest(label)['unfairness'] / found['floor'] - 1):.0f} %" for label in found["curves"]}
    fair = fairest("MCFair")
    return (
        f"{found['steps']:,} sessions, mean over {found['seeds']} seeds. At its fair end BayesFair is "
        f'{above["BayesFair"]} above the fairness floor, MCFair {above["MCFair"]}, `MCFair(scale="mean")` '
        f"{above['MCFair(scale=mean)']}. At the unfairness of MCFair's fairest point, {fair['unfairness']:.0f}, "
        f"BayesFair has an average NDCG@5 of {ndcg_at('BayesFair', fair['unfairness']):.3f}; MCFair has "
        f'{fair["ndcg"]:.3f} and with `scale="mean"` {ndcg_at("MCFair(scale=mean)", fair["unfairness"]):.3f}.'
    )


@quoted("bayesfair-price")
def bayesfair_price() -> str:
    """Return what the default α costs and saves with ten candidates."""
    found = results("bayesfair")
    start, default = (found["prices"]["10 candidates"][found["alphas"].index(each)] for each in (0, 40))
    saved = 1 - default["unfairness"] / start["unfairness"]
    return f"costs {start['ndcg'] - default['ndcg']:.3f} of NDCG@5 and saves {100 * saved:.0f} % of the unfairness"


@quoted("bayesfair-few")
def bayesfair_few() -> str:
    """Return the figures of runs with little to pool, as a table."""
    found = results("bayesfair")
    heads = {
        "single": "one query, 300 sessions",
        "single, weak": "one query, relevance a twentieth, 1,000 sessions",
        "pooled, weak": "83 queries, relevance a twentieth, 83,000 sessions",
    }
    rows = [
        [head, f"`{policy}`", f"{each['unfairness']:.1f}", f"{each['ndcg']:.3f}"]
        for key, head in heads.items()
        for policy, each in found[key].items()
    ]
    return table(["run", "policy", "unfairness", "average NDCG@5"], rows)


@quoted("bayesfair-ends")
def bayesfair_ends() -> str:
    """Return the figures on long lists, as a table."""
    rows = [
        [f"`{policy}`", f"{each['unfairness']:.0f}", f"{each['ndcg']:.3f}", f"{each['cndcg']:.1f}"]
        for policy, each in results("bayesfair")["ends"].items()
    ]
    return table(["policy", "unfairness", "average NDCG@5", "cNDCG@5"], rows)
