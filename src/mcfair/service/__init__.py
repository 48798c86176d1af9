"""The ranking service: lists for people instead of simulated users, durable, idempotent and explainable."""
