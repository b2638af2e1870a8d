from __future__ import annotations

import socket

import pytest

from scripts.launcher.errors import LaunchError
from scripts.launcher.ports import Ports, choose, resolve


def test_zeros_become_three_different_free_ports():
    chosen = choose("127.0.0.1", Ports(0, 0, 0))
    assert len(set(chosen)) == 3
    assert all(chosen)


@pytest.mark.parametrize("service", Ports._fields)
def test_a_port_in_use_is_named_with_its_flag(service):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} on 127.0.0.1 is already in use.*--{service}-port"):
            choose("127.0.0.1", Ports(0, 0, 0)._replace(**{service: port}))


def test_two_services_cannot_share_a_port():
    port = choose("127.0.0.1", Ports(0, 0, 0)).http
    with pytest.raises(LaunchError, match="--grpc-port"):
        choose("127.0.0.1", Ports(port, port, 0))


def test_impossible_ports_and_hosts_are_refused():
    with pytest.raises(LaunchError, match="--http-port 70000: a port is a number"):
        choose("127.0.0.1", Ports(70000, 0, 0))
    with pytest.raises(LaunchError, match="not an address of this machine"):
        choose("192.0.2.1", Ports(0, 0, 0))
    with pytest.raises(LaunchError, match=r"--host no\.such\.host\.invalid"):
        resolve("no.such.host.invalid")
