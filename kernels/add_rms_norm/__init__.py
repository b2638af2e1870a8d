"""Residual addition and root-mean-square normalisation in one pass."""
