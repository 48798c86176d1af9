"""Limits, significance and tuning."""
