"""Moving whole pool blocks: copy on write, and between the pool and a staging buffer for the host."""
