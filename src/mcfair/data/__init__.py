"""Queries and their candidate items, and where they come from."""
