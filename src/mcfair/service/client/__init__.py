"""Clients of the service over HTTP: `Client` and, for asyncio, `AsyncClient`. No retry counts twice.

`exchange` has the requests, retries and deadlines; `routing` chooses among the instances of a service; `transport`
sends one request within its timeout, blocking or in an event loop; `clients` joins them.
"""

from .clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
