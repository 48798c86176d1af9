"""A ranker with some days of simulated traffic, for the dashboard; names are hostile where they can be."""

import random

from mcfair.service.ranker import Ranker

HOUR = 3_600_000
START = 1_767_225_600_000  # 1 January 2026
HOSTILE_GROUP = "<script>document.title='owned'</script>"
HOSTILE_ITEM = "\"><img src=x onerror=\"document.title='owned'\"> & 'quoted'"
QUERIES = ("red shoes", "blue shoes", "hats & <b>caps</b>")


class SetClock:
    """A clock that shows what it is set to, in ms."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


def filled_ranker(hours=30, lists=120):
    """Return a ranker in memory with a policy change, groups, and clicks by a known relevance."""
    clock, rng = SetClock(), random.Random(0)
    ranker = Ranker("memory:", clock=clock, summary_interval=0, policy="TopK")
    for i in range(lists):
        hour = i * hours // lists
        if START + hour * HOUR != clock.now:
            ranker.worker.summarize()  # records the figures of the hour
            clock.now = START + hour * HOUR
        if i == lists // 2:
            ranker.change_policy(policy="MCFair(alpha=10)")
        query = QUERIES[i % len(QUERIES)]
        items = [
            {"id": f"item {j}" if j else HOSTILE_ITEM, "group": HOSTILE_GROUP if j % 3 == 0 else "plain group"}
            for j in range(7)
        ]
        answer = ranker.rank(query, items, k=3)
        clicked = [item.id for item in answer.items if rng.random() < (0.6 if item.id == HOSTILE_ITEM else 0.2)]
        ranker.feedback([{"impression": answer.impression, "item": item} for item in clicked])
    ranker.worker.summarize()
    return ranker
