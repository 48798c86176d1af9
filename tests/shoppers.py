"""Clients that rank, click and insist on an answer; ledgers of what was acknowledged, and what follows from them."""

import json
import math
import random
import threading
import time
from collections import Counter, defaultdict, deque

from service_process import Connection, LostError

SHOWN, UNSHOWN, CLICKED, UNCLICKED = 1, 2, 4, 8
PATIENCE = 300.0
"""How long somebody insists, in seconds; a server that has to compile first takes that long."""

BITS = {("click", False): CLICKED, ("click", True): UNCLICKED, ("shown", False): SHOWN, ("shown", True): UNSHOWN}


class Impression:
    """A list that was acknowledged, how it was asked for, and what was acknowledged of each of its ranks."""

    __slots__ = ("bits", "body", "candidates", "items", "key", "name", "query", "query_id")

    def __init__(self, key, body, answer):
        request = json.loads(body)
        self.key, self.body = key, body
        self.query, self.candidates = request["query"], [item["id"] for item in request["items"]]
        self.name, self.query_id = answer["impression"], answer["query_id"]
        self.items = [item["id"] for item in answer["items"]]
        self.bits = [0 if request["defer_exposure"] else SHOWN] * len(self.items)

    def exposed(self, rank):
        return self.bits[rank] & (SHOWN | UNSHOWN) == SHOWN

    def clicked(self, rank):
        return self.bits[rank] == SHOWN | CLICKED

    def take(self, event, retract):
        """Take an event in; say what the service has to say of it."""
        bit = BITS[event["type"], retract]
        if event["type"] == "click":
            ranks = [self.items.index(event["item"])]
        else:
            ranks = [rank - 1 for rank in event.get("ranks", range(1, len(self.items) + 1))]
        fresh = [rank for rank in ranks if not self.bits[rank] & bit]
        for rank in fresh:
            self.bits[rank] |= bit
        return "applied" if fresh else "duplicate"


class Books:
    """What must be known of queries: the sum of all impressions, in whole numbers."""

    def __init__(self):
        self.visits = Counter()
        self.names = {}
        self.known = defaultdict(set)
        self.F = Counter()  # by query, item and rank
        self.C = Counter()  # by query and item

    def add(self, impression):
        query = impression.query
        self.visits[query] += 1
        self.names[query] = impression.query_id
        self.known[query].update(impression.candidates)
        for rank, item in enumerate(impression.items):
            self.F[query, item, rank] += impression.exposed(rank)
            self.C[query, item] += impression.clicked(rank)

    def exposure(self, query, item):
        """E = Σ_j F_j / log2(j + 1)."""
        return sum(self.F[query, item, rank] / math.log2(rank + 2) for rank in range(20))

    def faults(self, state, query):
        """Compare with what the service says of a query."""
        found = {item["id"]: item for item in state["items"]}
        if found.keys() != self.known[query]:
            yield f"items {sorted(found)} instead of {sorted(self.known[query])}"
        yield from differ("visits", state["visits"], self.visits[query])
        for item in sorted(found.keys() & self.known[query]):
            yield from differ(f"clicks of {item}", found[item]["clicks"], self.C[query, item])
            exposure = self.exposure(query, item)
            if not math.isclose(found[item]["exposure"], exposure, rel_tol=1e-9):
                yield from differ(f"exposure of {item}", found[item]["exposure"], exposure)

    def export_faults(self, lines):
        """Compare the counts of an export, which are whole numbers, with ours."""
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
                yield from differ(f"{query}: clicks of {item['id']}", C, self.C[query, item["id"]])
                for rank in range(20):
                    name = f"{query}: {item['id']} at rank {rank + 1}"
                    yield from differ(name, F[rank], self.F[query, item["id"], rank])
        if seen != set(self.names):
            yield f"the export has {len(seen)} queries instead of {len(self.names)}"


def differ(what, found, wanted):
    if found < wanted:
        yield f"lost: {what} is {found} instead of {wanted}"
    elif found > wanted:
        yield f"counted twice: {what} is {found} instead of {wanted}"


class StoppedError(Exception):
    """The server does not come back, so there is nothing to insist on."""


class Street:
    """What the shoppers share: where the server is, and what to call out."""

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
        """Have everybody finish what they are at; who cannot says why."""
        self.closing.set()
        for each in shoppers:
            each.join(seconds)
            if each.is_alive():
                self.faults.append(f"{each.name} has no answer after {seconds:g} s")


class Shopper(threading.Thread):
    """One client: asks for lists, reports what becomes of them, and repeats itself until it is answered.

    It has a query of its own, of which it knows the state at any time, and shares others with everybody.
    """

    def __init__(self, street, number, seed, *, queries=4, items=12, pause=0.0):
        super().__init__(name=f"shopper {number}", daemon=True)
        self.street, self.number, self.pause = street, number, pause
        self.dice = random.Random(f"{seed} {number}")
        self.own = f"query of {number}"
        self.queries = [self.own, *(f"query {i}" for i in range(queries))]
        self.catalogue = [f"item{i}" for i in range(items)]
        self.connection = Connection(street.port, patience=30.0)
        self.serial = 0
        self.lost = 0
        self.impressions = []
        self.reports = deque(maxlen=3)
        self.books = Books()

    # --- insisting ---------------------------------------------------------------------------------------------------

    def insist(self, method, path, body=None, key=None):
        """Ask until there is an answer; return it, and how often was asked."""
        attempts = 0
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.street.given_up.is_set():
                raise StoppedError
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path}: no answer in {attempts} tries")
            attempts += 1
            try:
                reply = self.connection.ask(method, path, body, key)
            except LostError:
                self.lost += 1
                time.sleep(0.005)
                self.street.up.wait(1.0)
                continue
            if reply.status == 503:
                time.sleep(0.05)
                continue
            return reply, attempts

    def fault(self, text):
        self.street.faults.append(f"{self.name}: {text}")

    # --- what it does ------------------------------------------------------------------------------------------------

    def run(self):
        try:
            while not self.street.closing.is_set():
                lost = self.lost
                self.visit()
                if self.lost > lost:
                    self.remind()
                if self.pause:
                    time.sleep(self.pause * self.dice.uniform(0.5, 1.5))
        except StoppedError:
            pass
        except Exception as error:
            self.fault(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.connection.http.close()

    def visit(self):
        """Ask for a list, then look at it, click, think better of it, and say some of it twice."""
        dice = self.dice
        impression = self.rank(dice.choice(self.queries), deferred=dice.random() < 0.3)
        if impression is None:
            return
        if dice.random() < 0.2:  # who clicks before they say that they have seen it
            self.report(impression, [self.click(impression)])
        if not impression.exposed(0):
            ranks = dice.sample(range(1, len(impression.items) + 1), dice.randint(1, len(impression.items)))
            self.report(impression, [{"type": "shown"} | ({"ranks": ranks} if dice.random() < 0.7 else {})])
        if dice.random() < 0.6:
            events = [self.click(impression) for _ in range(dice.randint(1, 3))]
            self.report(impression, events)
            if dice.random() < 0.2:
                self.report(impression, events)
        if dice.random() < 0.15:
            event = self.click(impression) if dice.random() < 0.6 else {"type": "shown", "ranks": [1]}
            self.report(impression, [event], retract=True)
        if dice.random() < 0.05:
            self.look()

    def click(self, impression):
        return {"type": "click", "item": self.dice.choice(impression.items)}

    def rank(self, query, deferred):
        dice = self.dice
        self.serial += 1
        key = f"{self.number}-{self.serial}"
        chosen = dice.sample(self.catalogue, dice.randint(2, len(self.catalogue)))
        items = [{"id": item} | ({"prior": 0.5} if dice.random() < 0.2 else {}) for item in chosen]
        request = {"query": query, "items": items, "k": dice.randint(1, 6), "defer_exposure": deferred}
        body = json.dumps(request).encode()
        reply, attempts = self.insist("POST", "/v1/rank", body, key)
        if reply.status != 200:
            self.fault(f"rank {key} was answered by {reply.status}: {reply.content!r}")
            return None
        self.street.note("rank", attempts)
        impression = Impression(key, body, reply.json)
        self.impressions.append(impression)
        if query == self.own:
            self.books = None  # to be summed up when it is needed
        return impression

    def report(self, impression, events, retract=False, known=False):
        """Report events; what comes back must be what the ledger says, or that an earlier try has arrived."""
        body = json.dumps({"events": [{"impression": impression.name} | event for event in events]}).encode()
        reply, attempts = self.insist("POST", "/v1/retract" if retract else "/v1/feedback", body)
        if reply.status != 200:
            self.fault(f"feedback on {impression.key} was answered by {reply.status}: {reply.content!r}")
            return
        self.street.note("retract" if retract else events[0]["type"], attempts)
        found = [result["status"] for result in reply.json["results"]]
        wanted = [impression.take(event, retract) for event in events]
        if found != wanted and not (attempts > 1 and set(found) == {"duplicate"}):
            kind = "lost" if known or not set(found) <= {"applied", "duplicate"} else "not what was expected"
            self.fault(f"{kind}: events on {impression.key} are {found} instead of {wanted}")
        if not known:
            self.reports.append((impression, events, retract))
        if impression.query == self.own:
            self.books = None

    def remind(self):
        """After the server was gone, say again what it had acknowledged: nothing of it may be news."""
        for impression in self.impressions[-3:]:
            self.rank_again(impression)
        for impression, events, retract in list(self.reports):
            self.report(impression, events, retract, known=True)
        self.look()

    def rank_again(self, impression):
        reply, attempts = self.insist("POST", "/v1/rank", impression.body, impression.key)
        self.street.note("rank again", attempts)
        answer = reply.json if reply.status == 200 else {"impression": reply.status, "items": []}
        if answer["impression"] != impression.name or [item["id"] for item in answer["items"]] != impression.items:
            self.fault(f"lost: rank {impression.key} was answered by another list")

    def look(self):
        """Look at the own query: everything acknowledged must be there, and nothing else."""
        if self.books is None:
            self.books = Books()
            for each in self.impressions:
                if each.query == self.own:
                    self.books.add(each)
        if self.books.visits[self.own]:
            reply, _ = self.insist("POST", "/v1/queries/lookup", {"query": self.own})
            for fault in self.books.faults(reply.json, self.own) if reply.status == 200 else [f"lost: {reply.status}"]:
                self.fault(f"{self.own}: {fault}")

    def explain(self, impression):
        """Ask why a list was as it was, which says also what is known of its ranks."""
        reply, _ = self.insist("GET", f"/v1/impressions/{impression.name}/explain")
        if reply.status != 200:
            self.fault(f"lost: impression of {impression.key} is answered by {reply.status}")
            return
        found = [(item["id"], item["shown"], item["clicked"]) for item in reply.json["items"]]
        wanted = [(item, impression.exposed(j), impression.clicked(j)) for j, item in enumerate(impression.items)]
        if found != wanted:
            self.fault(f"lost: impression of {impression.key} is {found} instead of {wanted}")
