"""Attention of a ragged, mixed batch over keys and values kept in pool blocks."""
