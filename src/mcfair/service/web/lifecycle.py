"""Admission control and the phases of the service: serving, draining, stopped.

Requests are admitted after their head has been authorized and before their body is read, so that strangers cannot use
up the places, and under overload a refused request costs almost nothing.
"""

from __future__ import annotations

from typing import Literal

from .requests import HTTPError

__all__ = ["AdmissionError", "Allowance", "Lifecycle"]


class AdmissionError(HTTPError):
    """A request was refused by admission control."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, f"{detail}; nothing was changed", retry_after="1")


class Allowance:
    """A maximum number of concurrent requests, and how many there are."""

    __slots__ = ("in_flight", "limit")

    def __init__(self, limit: int) -> None:
        self.limit, self.in_flight = limit, 0


class Lifecycle:
    """The phase of the service and its requests in flight.

    While draining, requests are processed, but every response closes its connection, so that clients reconnect
    elsewhere. Once stopped, requests are refused. Probes are admitted in every phase.

    Parameters
    ----------
    max_in_flight
        Maximum number of concurrent requests.
    max_probes
        Maximum number of concurrent probes. They have an allowance of their own, so that overload can be observed.
    """

    def __init__(self, max_in_flight: int = 128, max_probes: int = 32) -> None:
        self.requests, self.probes = Allowance(max_in_flight), Allowance(max_probes)
        self.phase: Literal["serving", "draining", "stopped"] = "serving"

    @property
    def in_flight(self) -> int:
        """Number of admitted requests and probes."""
        return self.requests.in_flight + self.probes.in_flight

    def admit(self, *, probe: bool) -> Allowance:
        """Admit a request, or raise AdmissionError; the caller decrements `in_flight` of the result at the end."""
        allowance = self.probes if probe else self.requests
        if self.phase == "stopped" and not probe:
            raise AdmissionError("the service is stopping")
        if allowance.in_flight >= allowance.limit:
            raise AdmissionError("too many requests are in flight")
        allowance.in_flight += 1
        return allowance
