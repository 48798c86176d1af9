"""Problem responses (RFC 9457) for every error. Details that may name paths are for the log alone."""

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

logger = logging.getLogger("mcfair.service")

NOT_READABLE = "the store cannot be read; the log of the service has the cause"


class Problems:
    """Build problem responses, and log the failures that are not faults of a request.

    Parameters
    ----------
    ranker
        The ranker; its executor logs why the store fails.
    policy_log_seconds
        Minimum interval between two log entries about policies that fail.
    """

    def __init__(self, ranker: Ranker, policy_log_seconds: float = 60.0) -> None:
        self.ranker, self.policy_log_seconds = ranker, policy_log_seconds
        self.policy_logged_at = -math.inf

    def respond(self, error: Exception, route: str) -> Response:
        """Build the problem response for an error."""
        match error:
            case HTTPError():
                return problem_response(error.status, str(error), error.field, **error.headers)
            case RequestError():
                return problem_response(400, str(error), error.field)
            case PolicyError():
                self.log_policy_failure(error, route)
                return problem_response(400, str(error), "policy")
            case SettingError():
                return problem_response(400, str(error))
            case NotFoundError():
                return problem_response(404, str(error))
            case ConflictError():
                return problem_response(409, str(error))
            case UnavailableError():
                detail = NOT_READABLE if error.__cause__ is not None else str(error)
                if self.ranker.executor.store_error is not None:
                    detail = f"{error}; the log of the service has the cause"
                return problem_response(503, detail, retry_after=str(max(1, math.ceil(error.retry_after))))
            case StoreError():  # some stored data cannot be read
                return problem_response(503, NOT_READABLE, retry_after="60")
            case _:
                log_failure(route, error)
                return problem_response(500, "an unexpected error occurred and was logged")

    def log_policy_failure(self, error: PolicyError, route: str) -> None:
        """Log why a policy failed, at most once per interval; one that does not exist is a fault of the request."""
        now = time.monotonic()
        if error.__cause__ is not None and now - self.policy_logged_at >= self.policy_log_seconds:
            self.policy_logged_at = now
            log_failure(route, error)


def log_failure(where: str, error: BaseException) -> None:
    """Log the traceback of an error without its message, which may quote a request."""
    origin = error.__cause__ or error
    frames = "".join(traceback.format_tb(origin.__traceback__))
    logger.error("%s failed: %s\n%s", where, type(origin).__name__, frames)
