"""The former place of `mcfair.report.figures`."""

from .figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "VERMILLION"]
