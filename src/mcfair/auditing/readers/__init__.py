"""Readers of logs, one module for each format."""
