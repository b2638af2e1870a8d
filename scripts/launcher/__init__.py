"""Starts, watches and ends one Triton Server.

Owns: where the server binary is, the rendered copy of the model repository, the ports, the server's processes,
its shared memory and its log. Does not own: any model's content, nor what a parameter means.

Reading order: supervisor.py (one server after another), server.py (one server's life), then repository.py,
server_binary.py, command.py, leftovers.py.
"""
