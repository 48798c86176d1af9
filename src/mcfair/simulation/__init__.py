"""The simulated ranking service."""
