"""A pool in whole numbers of 16 bits, laid out for the CPU."""
