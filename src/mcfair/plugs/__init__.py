"""Adapters to the tools that people rank and evaluate with; each module imports its library itself."""
