"""Penalties on tokens that were there before, and a request's own bias on tokens."""
