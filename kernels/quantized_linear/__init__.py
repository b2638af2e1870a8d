"""Matrix products with weights in 8 or 4 bits; activations stay as they are."""
