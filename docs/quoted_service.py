"""The quoted figures of the service: performance, default rules, and the arithmetic of scale; see `quoting`."""

from __future__ import annotations

from statistics import median
from typing import Any

from quoting import quoted, results, table, table_of

from mcfair.users.examination import examination

LISTS_A_DAY = 10**9
PEAK = 3  # the busiest second against the mean of the day
BUSY = 0.6  # share of a core that is planned for
RETENTION_DAYS = 7
SHARDS = 16
TIMES = "\N{MULTIPLICATION SIGN}"
KEY_ITEM = "a query's item"


def service_row(title: str, name: str | None = None) -> dict[str, Any]:
    """Return a row of a table of the service's benchmark."""
    rows = table_of("service", title)
    return rows[0] if name is None else next(each for each in rows if each[""] == name)


def latency(name: str, quantile: str) -> float:
    """Return milliseconds of the table of latencies."""
    return float(service_row("Milliseconds", name)[quantile])


# --- one process -----------------------------------------------------------------------------------------------------


@quoted("service-performance")
def service_performance() -> str:
    """Return the performance of one process."""
    load, feedback = service_row("Overload"), service_row("Feedback")
    calm, new = "calm: service, n = 100", "calm: service, n = 100, 4 of 5 queries new"
    more = latency("calm: service, n = 1,000", "p50") - latency(calm, "p50")
    stored = service_row("Bytes", "database")
    return table(
        ["quantity", "value"],
        [
            [
                "lists of 10 from 100 candidates, closed loop, 64 connections",
                f"{load['capacity, requests/s']:,.0f} durable lists/s, {load['CPU, µs a request']:.0f} µs of CPU each",
            ],
            [
                "the same at 1,000 lists/s, random arrivals",
                f"p50 {latency('service, n = 100', 'p50'):.1f} ms, p99 {latency('service, n = 100', 'p99'):.0f} ms; in "
                f"the same run a bare endpoint p50 {latency('bare endpoint, n = 100', 'p50'):.1f} and p99 "
                f"{latency('bare endpoint, n = 100', 'p99'):.0f} ms, and a bare group commit p50 "
                f"{latency('bare group commit', 'p50'):.1f} and p99 {latency('bare group commit', 'p99'):.1f} ms",
            ],
            [
                "the same at 200 lists/s",
                f"p50 {latency(calm, 'p50'):.1f} ms, p99 {latency(calm, 'p99'):.1f} ms; {latency(new, 'p50'):.1f} and "
                f"{latency(new, 'p99'):.0f} ms if four of five queries are new",
            ],
            ["1,000 candidates at 200 lists/s", f"p50 {more:.2f} ms more than 100 candidates"],
            [
                "five times the capacity, 500 connections",
                f"{100 * load['refused with 503']:.0f} % refused with 503 and `Retry-After`, {load['answered/s']:.0f} "
                "lists/s answered; p99 at 30 % of the capacity was normal again after "
                f"{table_of('service', 'p99 of each second')[1]['s until normal']} s",
            ],
            ["feedback in batches of 1,000", f"{feedback['events/s']:,.0f} events/s"],
            [
                "stored bytes",
                f"{stored['an impression']:.0f} an impression with its idempotency key, "
                f"{stored[KEY_ITEM]:.0f} an item of a query",
            ],
        ],
    )


@quoted("service-capacity")
def service_capacity() -> str:
    """Return the rankings per second of one process, in hundreds."""
    return f"{100 * round(service_row('Overload')['capacity, requests/s'] / 100):,}"


@quoted("service-item-memory")
def service_item_memory() -> str:
    """Return the bytes of memory of a cached item, in tens."""
    return f"{10 * round(service_row('Bytes', 'memory')[KEY_ITEM] / 10)} bytes"


@quoted("service-example")
def service_example() -> str:
    """Return the disk space of 100,000 queries of 50 items and 200 rankings per second, kept for a week."""
    stored = service_row("Bytes", "database")
    items, impressions = 100_000 * 50, 200 * 86_400 * RETENTION_DAYS
    sizes = items * stored[KEY_ITEM], impressions * stored["an impression"]
    return (
        f"{items / 1e6:.0f} million items ({sizes[0] / 1e9:.1f} GB) and {impressions / 1e6:.0f} million impressions "
        f"({sizes[1] / 1e9:.0f} GB)"
    )


@quoted("service-targets")
def service_targets() -> str:
    """Return the targets of the service's benchmark that are not met, in words."""
    missed = [each for each in table_of("service", "Targets") if each["verdict"] != "met"]
    return "; ".join(f"{each['figure']}: {each['value']:.1f} instead of {each['target']}" for each in missed) or "none"


# --- default rules ---------------------------------------------------------------------------------------------------


def defaults(name: str) -> str:
    """Return a table of the default rules."""
    head, *rows = results("defaults")["tables"][name]["table"]
    return table(head, rows)


@quoted("defaults-costs")
def defaults_costs() -> str:
    """Return the costs of the default rules, one by one."""
    return defaults("costs")


@quoted("defaults-short-lists")
def defaults_short_lists() -> str:
    """Return MCFair beside BayesFair on forty queries of about ten candidates."""
    return defaults("short lists")


@quoted("defaults-long-lists")
def defaults_long_lists() -> str:
    """Return MCFair beside BayesFair on one query of 200 candidates."""
    return defaults("long lists")


@quoted("defaults-worst")
def defaults_worst() -> str:
    """Return the NDCG of the worst of the first lists under the default rules, with exact priors."""
    head, *rows = results("defaults")["tables"]["costs"]["table"]
    worst = next(row for row in rows if row[0] == "default")[head.index("worst of the first 200 lists")]
    return min(worst.split(" / "))


@quoted("defaults-all-shown")
def defaults_all_shown() -> str:
    """Return after how many lists 200 candidates without priors were shown."""
    rows = results("defaults")["tables"]["no priors: all shown after"]["table"]
    return f"{max(int(each) for _, *row in rows for each in row)}"


@quoted("defaults-starved")
def defaults_starved(prior: str) -> str:
    """Return how many of the tutorial's shoes were starved without priors, or the least share of one with them."""
    shares = [list(map(float, row)) for name, *row in results("defaults")["tables"]["shoes"]["table"] if name == prior]
    if prior != "none":
        return f"{100 * min(map(min, shares)):.1f} %"
    starved = [sum(share < 0.01 for share in row) for row in shares]
    return f"{min(starved)} to {max(starved)} had less than 1 % of the exposure"


@quoted("last-rank")
def last_rank(k: str) -> str:
    """Return the share of the DCG that the last of k equally relevant items has."""
    p = examination(int(k))
    return f"{100 * p[-1] / p.sum():.0f} %"


# --- past one machine ------------------------------------------------------------------------------------------------


def case(name: str, quantity: str) -> float:
    """Return the median over rounds of a quantity on PostgreSQL."""
    return median(each[quantity] for each in results("postgres")["cases"][name])


@quoted("postgres-table")
def postgres_table() -> str:
    """Return one instance beside two on one PostgreSQL server."""
    names = ["requests/s", "instances, µs", "database, µs", "load, µs", "cores busy"]
    rows = [
        [name, *(f"{case(name, each):,.{1 if each == 'cores busy' else 0}f}" for each in names)]
        for name in results("postgres")["cases"]
    ]
    return table(["", "lists/s", "CPU of instances, µs a list", "of the database", "of the load", "cores busy"], rows)


@quoted("postgres-ratio")
def postgres_ratio() -> str:
    """Return how many times as many lists two routed instances rank as one."""
    return f"{case('two, routed', 'requests/s') / case('one instance', 'requests/s'):.1f}"


@quoted("scale-arithmetic")
def scale_arithmetic() -> str:
    """Return the arithmetic for a billion lists a day."""
    mean = LISTS_A_DAY / 86_400
    peak = PEAK * mean
    alone = service_row("Overload")["CPU, µs a request"]
    instance, database = (case("two, routed", f"{each}, µs") for each in ("instances", "database"))
    stored, memory = service_row("Bytes", "database"), service_row("Bytes", "memory")
    log = LISTS_A_DAY * RETENTION_DAYS * stored["an impression"] / 1e12
    items = 10_000_000 * 100
    clicks = 0.5 * peak * service_row("Feedback")["CPU, µs an event"] / 1e6
    rows = [
        ["lists a second, mean of the day", "10⁹ / 86,400", f"{mean:,.0f}", "arithmetic"],
        ["lists a second at the peak", f"{PEAK} {TIMES} mean", f"{peak:,.0f}", "assumed"],
        ["CPU a list, one process on SQLite", "", f"{alone:.0f} µs", "measured"],
        ["CPU a list on PostgreSQL, instances", "two instances, routed", f"{instance:.0f} µs", "measured"],
        ["CPU a list on PostgreSQL, database", "two instances, routed", f"{database:.0f} µs", "measured"],
        [
            f"instances, each on a core that is {100 * BUSY:.0f} % busy",
            f"{peak:,.0f} {TIMES} {instance:.0f} µs / {BUSY}",
            f"{peak * instance / 1e6 / BUSY:.0f}",
            "extrapolated",
        ],
        [
            "cores of databases, as busy",
            f"{peak:,.0f} {TIMES} {database:.0f} µs / {BUSY}",
            f"{peak * database / 1e6 / BUSY:.0f}",
            "extrapolated",
        ],
        ["cores for feedback, a click every other list", f"{peak / 2:,.0f} events/s", f"{clicks:.1f}", "extrapolated"],
        [
            f"log, {RETENTION_DAYS} days of retention",
            f"10⁹ {TIMES} {RETENTION_DAYS} {TIMES} {stored['an impression']:.0f} B",
            f"{log:.2f} TB",
            "extrapolated",
        ],
        [
            "counts of 10⁷ queries of 100 items",
            f"10⁹ {TIMES} {stored[KEY_ITEM]:.0f} B",
            f"{items * stored[KEY_ITEM] / 1e9:.0f} GB",
            "extrapolated",
        ],
        [
            "the same in the caches of all instances",
            f"10⁹ {TIMES} {memory[KEY_ITEM]:.0f} B",
            f"{items * memory[KEY_ITEM] / 1e9:.0f} GB",
            "extrapolated",
        ],
        [
            f"each of {SHARDS} databases: lists a second at the peak, log",
            "",
            f"{peak / SHARDS:,.0f}, {1000 * log / SHARDS:.0f} GB",
            "extrapolated",
        ],
    ]  # fmt: skip
    return table(["quantity", "how", "value", ""], rows)
