"""Measure a ranking with a half-life and without one, side by side.

Run as `python benchmarks/half_life.py`. Both engines rank the same requests in turn; time moves on so that counts
always lie in as many time buckets as a half-life keeps.
"""

import argparse
import time

import msgspec
import numpy as np
from measuring import MICRO

from mcfair.service.core.engine import Engine
from mcfair.service.core.rules import change_rules
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, RawRankRequest

START = 1_700_000_000_000
HALF_LIFE = 100.0
RULES = {"none": {}, "half-life": {"half_life": HALF_LIFE}}


def main():
    """Print the time per ranking with its feedback, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--per-bucket", type=int, default=20, help="lists per time bucket, a quarter of a half-life")
    chosen = parser.parse_args()
    now = START
    engines = {
        name: Engine(
            SQLiteStore(None), lambda stored, rules=rules: change_rules(stored, "MCFair", rules), clock=lambda: now
        )
        for name, rules in RULES.items()
    }
    items = msgspec.Raw(msgspec.json.encode([{"id": str(i)} for i in range(chosen.items)]))
    seconds = {name: [] for name in engines}
    for _ in range(chosen.rounds):
        now += round(HALF_LIFE * 1000 / 4 / chosen.per_bucket)
        for name, engine in engines.items():
            begun = time.perf_counter()
            answer = engine.rank(RawRankRequest(query="q", items=items, k=chosen.ranks))
            engine.feedback([Event(impression=answer.impression, item=answer.items[0].id)])
            seconds[name].append(time.perf_counter() - begun)
    kept = {name: np.array(each[chosen.rounds // 3 :]) for name, each in seconds.items()}
    for name, each in kept.items():
        print(f"{name:>10}: mean {MICRO * each.mean():7.0f} us, median {MICRO * np.median(each):7.0f} us")
    mean = kept["half-life"].mean() / kept["none"].mean()
    middle = np.median(kept["half-life"]) / np.median(kept["none"])
    print(f"     ratio: mean {mean:.2f}, median {middle:.2f}; target: at most about 2")


if __name__ == "__main__":
    main()
