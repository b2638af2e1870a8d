"""What the CPU implementations share: compiling and its cache, the thread team, the multiply-add tile, exponentials."""
