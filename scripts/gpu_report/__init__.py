"""Proving and measuring the kernels on a GPU; at toy sizes, through the interpreter, on a CPU."""
