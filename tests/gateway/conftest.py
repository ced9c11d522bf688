"""A fake model server for all the tests beside this file, and an installed gateway in front of it."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fake_upstream.server import FakeUpstream, fake_upstream
from tests.gateway.gateway_process import GatewayProcess, write_upstreams
from tests.installation import Installation, installation
from tests.secrecy import is_secret

# What tests about other things must not run into.
NO_LIMITS = {
    "RATE_LIMIT_KEY_RPM": "0",
    "RATE_LIMIT_IP_RPM": "0",
    "RATE_LIMIT_TEAM_RPM": "0",
    "RATE_LIMIT_KEY_CONCURRENCY": "0",
    "TEAM_POINTS_LIMIT": "0",
}


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[FakeUpstream]:
    with fake_upstream() as server:
        yield server


@pytest.fixture
def upstream(upstream_server: FakeUpstream) -> FakeUpstream:
    upstream_server.reset()
    return upstream_server


@pytest.fixture(scope="session")
def gateway_installation(
    upstream_server: FakeUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """SQLite, no limits, model servers as `write_upstreams` says; nothing runs yet."""
    folder = tmp_path_factory.mktemp("gateway")
    upstream_server.models = [{"id": "mystery-model", "object": "model", "owned_by": "somebody"}]
    # Bound and not listening: whoever connects is refused, and nobody else gets the port.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        file = write_upstreams(folder / "upstreams.toml", upstream_server.port, dead_port=nobody.getsockname()[1])
        made = {"UPSTREAMS_FILE": str(file), "FAKE_UPSTREAM_KEY": is_secret("sk-upstream-secret")}
        with installation(folder, **NO_LIMITS, **made) as installed:
            yield installed


@pytest.fixture(scope="session")
def gateway_process(gateway_installation: Installation) -> Iterator[GatewayProcess]:
    with GatewayProcess(gateway_installation, gateway_installation.start_web()) as process:
        yield process


@pytest.fixture
def gateway(gateway_process: GatewayProcess, upstream: FakeUpstream) -> GatewayProcess:
    """The web process, with a fake upstream that expects nothing yet."""
    return gateway_process


@pytest.fixture(scope="session")
def impatient_process(gateway_installation: Installation) -> Iterator[GatewayProcess]:
    """A second web process that waits for nothing long: 1 s for a model server, tenths of it for the rest."""
    web = gateway_installation.start_web(
        environment={"REQUEST_TIMEOUT_SECONDS": "1"},
        prelude=(
            "import django; django.setup(set_prefix=False)\n"
            "import gateway.chat, gateway.relay\n"
            "gateway.chat.KEEP_ALIVE_SECONDS = 0.1\n"
            "gateway.relay.DRAIN_LIMIT_SECONDS = 0.2\n"
        ),
    )
    with GatewayProcess(gateway_installation, web) as process:
        yield process


@pytest.fixture
def impatient(impatient_process: GatewayProcess, upstream: FakeUpstream) -> GatewayProcess:
    return impatient_process


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test server")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path
