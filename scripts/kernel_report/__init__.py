"""Compiling every kernel with no GPU, and what the results tell."""
