"""Audit of click logs: readers, counts, measures of fairness, intervals and the page that reports them."""
