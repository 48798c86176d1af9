"""The report of some experiments: one page that needs nothing else, and its figures and tables as files."""

from .page import write_report

__all__ = ["write_report"]
