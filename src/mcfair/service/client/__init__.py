"""Clients of the service over HTTP: `Client` and, for asyncio, `AsyncClient`. No retry counts twice.

`exchange` has the requests, retries and deadlines without I/O, as generators; `routing` chooses among the instances of
a service; `asynchronous` does the I/O in an event loop, and `blocking` runs such a loop in a thread.
"""

from .asynchronous import AsyncClient
from .blocking import Client

__all__ = ["AsyncClient", "Client"]
