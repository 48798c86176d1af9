"""What the reads of a service say of an engine, inside its open transaction."""

from mcfair.service.core import explanations, reports


def observed(engine, query):
    """Return the observations of a query, by the ledger that the engine has in memory."""
    return reports.query_state(engine.ledger(engine.find_number(query, None)), engine.version, engine.now())


def explained(engine, impression):
    """Explain a list by what is stored."""
    return explanations.explain(engine.store, impression)
