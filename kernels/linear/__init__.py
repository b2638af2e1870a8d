"""Matrix product with a weight stored output-major."""
