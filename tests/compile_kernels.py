"""Compile the kernels that most tests call, side by side, before the processes of the tests start.

A kernel is compiled once on a machine and read from a cache afterwards. Processes that need it at the same time would
each compile it: `make test` calls this first, and it does nothing that is done already.

    python tests/compile_kernels.py
"""

import multiprocessing
import os
import time
import warnings


def simulate(**options):
    import mcfair as mf

    data = mf.synthetic("mq2008-like", seed=0).select(max_items=12)
    settings = {"steps": 50, "seed": 0, "clicks": "PositionBased", "policy": "TopK", **options}
    mf.simulate(data, settings.pop("policy"), settings.pop("setting", "online"), **settings)


def serve():
    import mcfair as mf

    with mf.Ranker("memory:") as ranker:
        answer = ranker.rank("a query", ["an item", "another", "a third"], k=2)
        ranker.click(answer.impression, answer.items[0].id)
        ranker.fairness()
        ranker.explain(answer.impression)


def audit():
    import polars as pl

    import mcfair as mf

    rows = [
        (i, f"q{i % 3}", f"i{(i + j) % 5}", j + 1, (i + j) % 3 == 0, f"g{j % 2}") for i in range(40) for j in range(3)
    ]
    log = pl.DataFrame(rows, schema=["impression", "query", "item", "rank", "clicked", "group"], orient="row")
    mf.audit(log, resamples=3)
    mf.fit_examination(log)


def jobs():
    """The first ones share least: the loop of the simulator, the service, the audit."""
    import mcfair as mf

    yield simulate, {}
    yield serve, {}
    yield audit, {}
    yield simulate, {"setting": "post-processing"}
    for option, base in (("policy", mf.Policy), ("clicks", mf.ClickModel), ("estimator", mf.Estimator)):
        for name in mf.registered(base):
            yield simulate, {option: name}
    yield simulate, {"metrics": list(mf.registered(mf.Metric))}


def work(queue):
    warnings.simplefilter("ignore")
    while (job := queue.get()) is not None:
        call, options = job
        call(**options)


def main():
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(queue,)) for _ in range(os.cpu_count() or 1)]
    for job in jobs():
        queue.put(job)
    for each in processes:
        queue.put(None)
        each.start()
    for each in processes:
        each.join()
    print(f"kernels compiled in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
