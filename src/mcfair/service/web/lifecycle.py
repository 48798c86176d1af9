"""Admission control and the phases of the service: serving, draining, stopped.

Requests are admitted after their head has been authorized and before their body is read, so that strangers cannot use
up the places, and under overload a refused request costs almost nothing. A place is held until the response is
complete, not until the client has read it. Probes need no place, so nothing can keep them from responding.
"""

from __future__ import annotations

from typing import Literal

from .requests import HTTPError

__all__ = ["AdmissionError", "Lifecycle"]


class AdmissionError(HTTPError):
    """A request was refused by admission control."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, f"{detail}; nothing was changed", retry_after="1")


class Lifecycle:
    """The phase of the service and the number of its requests in flight.

    While draining, requests are processed, but every response closes its connection, so that clients reconnect
    elsewhere. Once stopped, requests are refused, but probes are not.

    Parameters
    ----------
    max_in_flight
        Maximum number of concurrent requests.
    """

    def __init__(self, max_in_flight: int = 128) -> None:
        self.max_in_flight, self.in_flight = max_in_flight, 0
        self.phase: Literal["serving", "draining", "stopped"] = "serving"

    def admit(self) -> None:
        """Admit a request, or raise AdmissionError; the caller decrements `in_flight` at the end."""
        if self.phase == "stopped":
            raise AdmissionError("the service is stopping")
        if self.in_flight >= self.max_in_flight:
            raise AdmissionError("too many requests are in flight")
        self.in_flight += 1
