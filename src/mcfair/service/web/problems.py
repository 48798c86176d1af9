"""Problem responses (RFC 9457) for every error. Details that may name paths go to the log, once per episode."""

from __future__ import annotations

import logging
import math
import time
import traceback

from ...errors import (
    ConflictError,
    NotFoundError,
    PolicyError,
    RequestError,
    SettingError,
    StoreError,
    UnavailableError,
)
from ..ranker import Ranker
from .requests import HTTPError
from .responses import Response, problem_response

__all__ = ["EpisodeLog", "Problems", "log_failure"]

logger = logging.getLogger("mcfair.service")

STORE_FAILED = "the store cannot be read or written, and nothing was changed; the log of the service has the cause"


class EpisodeLog:
    """Log what fails again and again once per episode.

    Parameters
    ----------
    quiet_seconds
        An episode ends when nothing of its kind has failed for so long.
    """

    def __init__(self, quiet_seconds: float = 60.0) -> None:
        self.quiet_seconds = quiet_seconds
        self.last_failure: dict[str, float] = {}

    def begins(self, kind: str) -> bool:
        """Record a failure; return whether it is the first one of an episode."""
        now = time.monotonic()
        last = self.last_failure.get(kind, -math.inf)
        self.last_failure[kind] = now
        return now - last > self.quiet_seconds

    def end(self, kind: str) -> bool:
        """End an episode; return whether there was one."""
        return self.last_failure.pop(kind, None) is not None


class Problems:
    """Build problem responses, and log the failures that are not faults of a request.

    Parameters
    ----------
    ranker
        The ranker; its store error is the cause of refusals.
    episodes
        The log of episodes.
    """

    def __init__(self, ranker: Ranker, episodes: EpisodeLog) -> None:
        self.ranker, self.episodes = ranker, episodes

    def respond(self, error: Exception, route: str) -> Response:
        """Build the problem response for an error."""
        match error:
            case HTTPError():
                return problem_response(error.status, str(error), error.field, **error.headers)
            case RequestError():
                return problem_response(400, str(error), error.field)
            case PolicyError():
                if error.__cause__ is not None and self.episodes.begins("policy"):
                    log_failure(route, error)
                return problem_response(400, str(error), "policy")
            case SettingError():
                return problem_response(400, str(error))
            case NotFoundError():
                return problem_response(404, str(error))
            case ConflictError():
                return problem_response(409, str(error))
            case UnavailableError():
                detail = self.hide_cause(error)
                return problem_response(503, detail, retry_after=str(max(1, math.ceil(error.retry_after))))
            case StoreError():  # some stored data cannot be read
                self.log_store_failure(str(error))
                return problem_response(503, STORE_FAILED, retry_after="60")
            case _:
                log_failure(route, error)
                return problem_response(500, "an unexpected error occurred and was logged")

    def hide_cause(self, error: UnavailableError) -> str:
        """Return what may be told of an error; if the store caused it, log the rest."""
        if error.__cause__ is None and self.ranker.store_error is None:
            return str(error)
        self.log_store_failure(self.ranker.store_error or str(error))
        return STORE_FAILED

    def check_store(self) -> None:
        """Raise UnavailableError while the store cannot be written; log that, and when it can be written again."""
        if self.ranker.store_error is not None:
            raise UnavailableError(self.ranker.store_error)
        if self.episodes.last_failure and self.episodes.end("store"):
            logger.info("the store can be written again")

    def log_store_failure(self, cause: str) -> None:
        """Log a failure of the store, once per episode."""
        if self.episodes.begins("store"):
            logger.error("requests are refused, because the store cannot be read or written: %s", cause)


def log_failure(where: str, error: BaseException) -> None:
    """Log the traceback of an error without its message, which may quote a request."""
    origin = error.__cause__ or error
    frames = "".join(traceback.format_tb(origin.__traceback__))
    logger.error("%s failed: %s\n%s", where, type(origin).__name__, frames)
