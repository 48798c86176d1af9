"""Pages and figures: the report of experiments, and the parts for pages of your own.

Pictures need matplotlib and pages need jinja2, which `pip install 'mcfair[report]'` brings; importing needs neither.
"""

from ..experiments.results import Curve, Point
from .figures import MARKERS, NARROW_WIDTH, PALETTE, Panel, Style, shorten, tradeoff_alt, tradeoff_figure
from .page import Block, Document
from .sections import Report, write_report

__all__ = [
    "MARKERS",
    "NARROW_WIDTH",
    "PALETTE",
    "Block",
    "Curve",
    "Document",
    "Panel",
    "Point",
    "Report",
    "Style",
    "shorten",
    "tradeoff_alt",
    "tradeoff_figure",
    "write_report",
]
