"""Writing a step's keys and values into pool blocks."""
