"""The ranking service: fair rankings for live traffic, durable, idempotent and explainable."""
