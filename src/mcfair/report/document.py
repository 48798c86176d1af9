"""The former place of `mcfair.report.page`."""

from .page import Block, Document, Section

__all__ = ["Block", "Document", "Section"]
