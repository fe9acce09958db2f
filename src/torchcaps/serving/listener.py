"""Listening sockets and their addresses."""

from __future__ import annotations

import ipaddress
import socket

from torchcaps.errors import ConfigError

BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Args:
        host: Name or address to listen on.
        port: Port number; 0 selects a free port.

    Returns:
        The socket.

    Raises:
        ConfigError: If the port is out of range or in use, or the host is unknown.

    Example:
        >>> with listen("127.0.0.1", 0) as listener:
        ...     listener.getsockname()[0]
        '127.0.0.1'
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port: expected a number from 0 to 65535, got {port}")
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        raise ConfigError(f"--port: expected a free port of {host}, got {port} ({error})") from None
    return listener


def is_loopback(host: str) -> bool:
    """Whether a server on this host is reachable from its own machine only.

    Args:
        host: Name or address that the server listens on.

    Returns:
        True for `localhost` and the addresses of the loopback interface.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address_of(listener: socket.socket, host: str, token: str | None = None) -> str:
    """The address of a server for a browser on the same machine.

    Args:
        listener: The listening socket.
        host: The host that the socket was opened with.
        token: Token of the server, if it has one.

    Returns:
        The URL of the server's root.

    Example:
        >>> with listen("127.0.0.1", 0) as listener:
        ...     address_of(listener, "127.0.0.1").startswith("http://127.0.0.1:")
        True
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    root = f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}/"
    return root if token is None else f"{root}?token={token}"
