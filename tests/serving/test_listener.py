from __future__ import annotations

from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.serving import address_of, listen


def test_port_in_use() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with raises_about(ConfigError, "--port", "127.0.0.1", port):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 70000])
def test_port_out_of_range(port: int) -> None:
    with raises_about(ConfigError, "--port", port):
        listen("127.0.0.1", port)


def test_unknown_host() -> None:
    with raises_about(ConfigError, "--port", "no.such.host.invalid"):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "start"),
    [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("localhost", "http://localhost:")],
)
def test_address(host: str, start: str) -> None:
    with listen(host, 0) as listener:
        assert address_of(listener, host).startswith(start)


def test_address_of_ipv6() -> None:
    class Listener:
        def getsockname(self) -> tuple[str, int]:
            return "::", 8017

    listener: Any = Listener()
    assert address_of(listener, "::") == "http://[::1]:8017/"
