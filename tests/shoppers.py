"""Simulated shoppers: clients that retry until acknowledged, and the counts that their requests must lead to."""

import json
import math
import random
import threading
import time
from collections import Counter, defaultdict, deque

from service_process import Connection, NoResponseError

SHOWN, UNSHOWN, CLICKED, UNCLICKED = 1, 2, 4, 8
RETRY_SECONDS = 300.0
"""Timeout of retries, in seconds: a server that has to compile first takes that long to start."""

BITS = {("click", False): CLICKED, ("click", True): UNCLICKED, ("shown", False): SHOWN, ("shown", True): UNSHOWN}


class Impression:
    """An acknowledged list, its request, and the acknowledged feedback state of its ranks."""

    __slots__ = ("arm", "bits", "body", "candidates", "items", "key", "name", "query", "query_id")

    def __init__(self, key, body, answer):
        request = json.loads(body)
        self.key, self.body = key, body
        self.query, self.candidates = request["query"], [item["id"] for item in request["items"]]
        self.name, self.query_id = answer["impression"], answer["query_id"]
        self.items = [item["id"] for item in answer["items"]]
        self.arm = answer.get("arm")
        self.bits = [0 if request["defer_exposure"] else SHOWN] * len(self.items)

    def exposed(self, rank):
        return self.bits[rank] & (SHOWN | UNSHOWN) == SHOWN

    def clicked(self, rank):
        return self.bits[rank] == SHOWN | CLICKED

    def apply(self, event, retract):
        """Apply an event; return the status that the service must report."""
        bit = BITS[event["type"], retract]
        if event["type"] == "click":
            ranks = [self.items.index(event["item"])]
        else:
            ranks = [rank - 1 for rank in event.get("ranks", range(1, len(self.items) + 1))]
        fresh = [rank for rank in ranks if not self.bits[rank] & bit]
        for rank in fresh:
            self.bits[rank] |= bit
        return "applied" if fresh else "duplicate"


class ExpectedCounts:
    """The counts that follow from acknowledged impressions, as integers."""

    def __init__(self):
        self.visits = Counter()
        self.names = {}
        self.known = defaultdict(set)
        self.F = Counter()  # by query, item and rank
        self.C = Counter()  # by query and item
        self.arms = Counter()  # by arm and figure

    def add(self, impression):
        query = impression.query
        self.visits[query] += 1
        self.names[query] = impression.query_id
        self.known[query].update(impression.candidates)
        for rank, item in enumerate(impression.items):
            self.F[query, item, rank] += impression.exposed(rank)
            self.C[query, item] += impression.clicked(rank)
        if impression.arm is not None:
            ranks = range(len(impression.items))
            self.arms[impression.arm, "lists"] += any(map(impression.exposed, ranks))
            self.arms[impression.arm, "clicks"] += sum(map(impression.clicked, ranks))

    def exposure(self, query, item):
        """Return E = Σ_j F_j / log2(j + 1)."""
        return sum(self.F[query, item, rank] / math.log2(rank + 2) for rank in range(20))

    def faults(self, state, query):
        """Compare with the state of a query in the service; yield the differences."""
        found = {item["id"]: item for item in state["items"]}
        needed = {item for item in self.known[query] if self.exposure(query, item) or self.C[query, item]}
        if not needed <= found.keys() <= self.known[query]:  # idle items may have been deleted
            yield f"items {sorted(found)} instead of {sorted(self.known[query])}"
        yield from difference("visits", state["visits"], self.visits[query])
        for item in sorted(found.keys() & self.known[query]):
            yield from difference(f"clicks of {item}", found[item]["clicks"], self.C[query, item])
            exposure = self.exposure(query, item)
            if not math.isclose(found[item]["exposure"], exposure, rel_tol=1e-9):
                yield from difference(f"exposure of {item}", found[item]["exposure"], exposure)

    def arm_faults(self, report):
        """Compare with the results of an experiment; yield the differences."""
        for arm in report["arms"]:
            for figure in ("lists", "clicks"):
                yield from difference(f"{figure} of arm {arm['name']}", arm[figure], self.arms[arm["name"], figure])

    def export_faults(self, lines):
        """Compare with the counts of an export; yield the differences."""
        queries = {name: query for query, name in self.names.items()}
        seen = set()
        for line in map(json.loads, lines):
            if "items" not in line or "visits" not in line:
                continue
            query = queries.get(line["query"])
            seen.add(query)
            for item in line["items"]:
                F, C = Counter(), 0
                for counts in item["counts"]:
                    F.update(dict(enumerate(counts["ranks"])))
                    C += counts["clicks"]
                yield from difference(f"{query}: clicks of {item['id']}", C, self.C[query, item["id"]])
                for rank in range(20):
                    name = f"{query}: {item['id']} at rank {rank + 1}"
                    yield from difference(name, F[rank], self.F[query, item["id"], rank])
        if seen != set(self.names):
            yield f"the export has {len(seen)} queries instead of {len(self.names)}"


def difference(what, found, wanted):
    if found < wanted:
        yield f"lost: {what} is {found} instead of {wanted}"
    elif found > wanted:
        yield f"counted twice: {what} is {found} instead of {wanted}"


class GivenUpError(Exception):
    """The run was given up: the server does not come back."""


class LoadRun:
    """State shared by the shoppers: the address of the server, stop signals, and what was found."""

    def __init__(self, port):
        self.port = port
        self.up = threading.Event()
        self.closing = threading.Event()
        self.given_up = threading.Event()
        self.faults = []
        self.acknowledged = Counter()
        self.retried = Counter()
        self.lock = threading.Lock()

    def note(self, what, attempts):
        with self.lock:
            self.acknowledged[what] += 1
            self.retried[what] += attempts - 1

    def stop(self, shoppers, seconds=120.0):
        """Stop the shoppers after their current request; a shopper that does not stop is a fault."""
        self.closing.set()
        for each in shoppers:
            each.join(seconds)
            if each.is_alive():
                self.faults.append(f"{each.name} has no response after {seconds:g} s")


class Shopper(threading.Thread):
    """One client: requests rankings, reports feedback, and retries every request until it is acknowledged.

    It has a query of its own, whose state it can check at any time, and shares other queries with all shoppers.
    """

    def __init__(self, run_state, number, seed, *, queries=4, items=12, pause=0.0):
        super().__init__(name=f"shopper {number}", daemon=True)
        self.run_state, self.number, self.pause = run_state, number, pause
        self.rng = random.Random(f"{seed} {number}")
        self.own = f"query of {number}"
        self.queries = [self.own, *(f"query {i}" for i in range(queries))]
        self.catalogue = [f"item{i}" for i in range(items)]
        self.connection = Connection(run_state.port, timeout=30.0)
        self.serial = 0
        self.lost = 0
        self.impressions = []
        self.reports = deque(maxlen=3)
        self.expected = ExpectedCounts()

    # --- retries -----------------------------------------------------------------------------------------------------

    def send_until_answered(self, method, path, body=None, key=None):
        """Send a request until there is a response; return it and the number of attempts."""
        attempts = 0
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            if self.run_state.given_up.is_set():
                raise GivenUpError
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path}: no response in {attempts} attempts")
            attempts += 1
            try:
                reply = self.connection.request(method, path, body, key)
            except NoResponseError:
                self.lost += 1
                time.sleep(0.005)
                self.run_state.up.wait(1.0)
                continue
            if reply.status == 503:
                time.sleep(0.05)
                continue
            return reply, attempts

    def fault(self, text):
        self.run_state.faults.append(f"{self.name}: {text}")

    # --- behaviour ---------------------------------------------------------------------------------------------------

    def run(self):
        try:
            while not self.run_state.closing.is_set():
                lost = self.lost
                self.visit()
                if self.lost > lost:
                    self.repeat_recent()
                if self.pause:
                    time.sleep(self.pause * self.rng.uniform(0.5, 1.5))
        except GivenUpError:
            pass
        except Exception as error:
            self.fault(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.connection.http.close()

    def visit(self):
        """Request a list, then report shown ranks and clicks, retract some of them, and repeat some events."""
        rng = self.rng
        impression = self.rank(rng.choice(self.queries), deferred=rng.random() < 0.3)
        if impression is None:
            return
        if rng.random() < 0.2:  # a click that arrives before `shown`
            self.report(impression, [self.click(impression)])
        if not impression.exposed(0):
            ranks = rng.sample(range(1, len(impression.items) + 1), rng.randint(1, len(impression.items)))
            self.report(impression, [{"type": "shown"} | ({"ranks": ranks} if rng.random() < 0.7 else {})])
        if rng.random() < 0.6:
            events = [self.click(impression) for _ in range(rng.randint(1, 3))]
            self.report(impression, events)
            if rng.random() < 0.2:
                self.report(impression, events)
        if rng.random() < 0.15:
            event = self.click(impression) if rng.random() < 0.6 else {"type": "shown", "ranks": [1]}
            self.report(impression, [event], retract=True)
        if rng.random() < 0.05:
            self.check_own_query()

    def click(self, impression):
        return {"type": "click", "item": self.rng.choice(impression.items)}

    def rank(self, query, deferred):
        rng = self.rng
        self.serial += 1
        key = f"{self.number}-{self.serial}"
        chosen = rng.sample(self.catalogue, rng.randint(2, len(self.catalogue)))
        items = [{"id": item} | ({"prior": 0.5} if rng.random() < 0.2 else {}) for item in chosen]
        request = {"query": query, "items": items, "k": rng.randint(1, 6), "defer_exposure": deferred}
        request["session"] = f"{self.number}-{self.serial // 3}"
        body = json.dumps(request).encode()
        reply, attempts = self.send_until_answered("POST", "/v1/rank", body, key)
        if reply.status != 200:
            self.fault(f"rank {key} got status {reply.status}: {reply.content!r}")
            return None
        self.run_state.note("rank", attempts)
        impression = Impression(key, body, reply.json)
        self.impressions.append(impression)
        if query == self.own:
            self.expected = None  # recomputed when needed
        return impression

    def report(self, impression, events, retract=False, known=False):
        """Report events; the results must be as expected, or all duplicates if an earlier attempt was executed."""
        body = json.dumps({"events": [{"impression": impression.name} | event for event in events]}).encode()
        reply, attempts = self.send_until_answered("POST", "/v1/retract" if retract else "/v1/feedback", body)
        if reply.status != 200:
            self.fault(f"feedback on {impression.key} got status {reply.status}: {reply.content!r}")
            return
        self.run_state.note("retract" if retract else events[0]["type"], attempts)
        found = [result["status"] for result in reply.json["results"]]
        wanted = [impression.apply(event, retract) for event in events]
        if found != wanted and not (attempts > 1 and set(found) == {"duplicate"}):
            kind = "lost" if known or not set(found) <= {"applied", "duplicate"} else "unexpected"
            self.fault(f"{kind}: events on {impression.key} are {found} instead of {wanted}")
        if not known:
            self.reports.append((impression, events, retract))
        if impression.query == self.own:
            self.expected = None

    def repeat_recent(self):
        """After a restart, repeat what was acknowledged: nothing of it may be new to the server."""
        for impression in self.impressions[-3:]:
            self.rank_again(impression)
        for impression, events, retract in list(self.reports):
            self.report(impression, events, retract, known=True)
        self.check_own_query()

    def rank_again(self, impression):
        reply, attempts = self.send_until_answered("POST", "/v1/rank", impression.body, impression.key)
        self.run_state.note("rank again", attempts)
        answer = reply.json if reply.status == 200 else {"impression": reply.status, "items": []}
        if answer["impression"] != impression.name or [item["id"] for item in answer["items"]] != impression.items:
            self.fault(f"lost: rank {impression.key} got another list")

    def check_own_query(self):
        """Check the own query: it must have everything that was acknowledged, and nothing else."""
        if self.expected is None:
            self.expected = ExpectedCounts()
            for each in self.impressions:
                if each.query == self.own:
                    self.expected.add(each)
        if self.expected.visits[self.own]:
            reply, _ = self.send_until_answered("POST", "/v1/queries/lookup", {"query": self.own})
            for fault in (
                self.expected.faults(reply.json, self.own) if reply.status == 200 else [f"lost: {reply.status}"]
            ):
                self.fault(f"{self.own}: {fault}")

    def explain(self, impression):
        """Explain a list, and check the feedback state of its ranks in the explanation."""
        reply, _ = self.send_until_answered("GET", f"/v1/impressions/{impression.name}/explain")
        if reply.status != 200:
            self.fault(f"lost: impression of {impression.key} got status {reply.status}")
            return
        found = [(item["id"], item["shown"], item["clicked"]) for item in reply.json["items"]]
        wanted = [(item, impression.exposed(j), impression.clicked(j)) for j, item in enumerate(impression.items)]
        if found != wanted:
            self.fault(f"lost: impression of {impression.key} is {found} instead of {wanted}")
