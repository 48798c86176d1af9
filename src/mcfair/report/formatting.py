"""The former place of `mcfair.tables`."""

from ..tables import *  # noqa: F403
