"""Simulated users: which ranks they examine, what they click, when they arrive."""
