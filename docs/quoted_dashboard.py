"""The quoted figures of the dashboard, of its pictures, and of the guard of an experiment; see `quoting`."""

from __future__ import annotations

from quoting import quoted, results, table

from mcfair.service.summarizing import REST


def in_words(seconds: float) -> str:
    """Return a duration roughly, in seconds below two minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


@quoted("dashboard-walks")
def dashboard_walks() -> str:
    """Return what the walks over a large store cost, and how long they take with the rests between their steps."""
    found = results("dashboard")
    queries, walks = found["store"]["queries"], found["walks, CPU seconds"]
    first, again = walks["first"], walks["nothing changed"]
    long, short = (in_words(each * (1 + REST)) for each in (first, again))
    return (
        f"With {queries:,} queries the first walk needs {first:.0f} s of CPU ({1000 * first / queries:.1f} ms a "
        f"query), so about {long}, and one in which nothing has changed {again:.1f} s, so about {short}."
    )


@quoted("dashboard-pages")
def dashboard_pages() -> str:
    """Return the times of the pages, as a table; those of a busy machine would say nothing beside their CPU times."""
    found = results("dashboard")
    columns = {"CPU, ms": "CPU time, ms"}
    if found["made_with"]["load average at the start"][0] <= found["made_with"]["cpus"]:
        columns |= {"median, ms": "median, ms", "worst, ms": "worst, ms"}
    rows = [[name, *(f"{each[key]:.0f}" for key in columns)] for name, each in found["pages"].items()]
    return table(["page", *columns.values()], rows)


@quoted("dashboard-store")
def dashboard_store() -> str:
    """Return the store whose pages were measured."""
    found = results("dashboard")["store"]
    return f"{found['queries']:,} queries of {found['items']} items in {found['groups']} groups"


@quoted("live-items")
def live_items() -> str:
    """Return what the picture of items and groups shows of the seller who came late."""
    found = results("screenshots")["live"]
    seller, item = found["seller"], found["item"]
    lacking = 100 * (seller["merit"] - seller["exposure"])
    has, earns = (percent(item[name], 1) for name in ("exposure", "merit"))
    return (
        f"after {found['lists']:,} lists it has {lacking:.1f} points less exposure than it merits over all queries. "
        f"The item that lacks most views is *{item['name']}*, with {has} of the views of its query where its relevance "
        f"earns {earns}."
    )


@quoted("guard-stops")
def guard_stops() -> str:
    """Return how often the guard stopped arms that are exactly at their margins."""
    found = results("guard")
    cases = found["cases"]
    usual, few, small, high = (percent(cases[name]["stopped"] / found["runs"], 1) for name in cases)
    level, higher = (percent(cases[name]["level"]) for name in ("default", "high level"))
    return (
        f"it stopped {usual} at a level of {level}, {few} where lists have {cases['few clicks']['clicks']:g} clicks, "
        f"{small} with {percent(cases['small arm']['share'])} of the sessions in the arm, and {high} at a level of "
        f"{higher}: {found['runs']:,} runs each, of {found['looks']} looks"
    )


def percent(share: float, digits: int = 0) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.{digits}f} %"
