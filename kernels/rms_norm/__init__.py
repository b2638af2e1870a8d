"""Root-mean-square normalisation."""
