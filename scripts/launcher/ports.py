"""Ports: refuse those in use before anything starts, choose free ones where none is asked for."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import NamedTuple

from .errors import LaunchError


class Ports(NamedTuple):
    """TCP ports of one server's three services; 0 asks `choose` for a free one."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


def resolve(host: str) -> str:
    """The IPv4 address of `host`, since Triton Server binds to addresses only; raises LaunchError."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise LaunchError(f"--host {host}: {error.strerror or error}") from error


def choose(address: str, wanted: Ports) -> Ports:
    """`wanted` with every 0 replaced by a free port; raises LaunchError when one cannot be bound.

    All three stay bound until all are known, so that no two services get the same port.
    """
    with contextlib.ExitStack() as held:
        return Ports(
            *(
                _bound_port(held, address, port, f"--{service}-port")
                for service, port in zip(Ports._fields, wanted, strict=True)
            )
        )


def _bound_port(held: contextlib.ExitStack, address: str, port: int, flag: str) -> int:
    if not 0 <= port <= 65535:
        raise LaunchError(f"{flag} {port}: a port is a number from 0 to 65535")
    probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # Without this a port whose last connections are in TIME_WAIT would look taken just after a restart.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        raise LaunchError(_why_not(address, port, flag, error)) from error
    return int(probe.getsockname()[1])


def _why_not(address: str, port: int, flag: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {address} is already in use; choose another with {flag} (0 = any free port)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {address} is not an address of this machine"
    return f"port {port} on {address} ({flag}): {error.strerror}"
