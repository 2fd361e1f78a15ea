"""The certificate is checked before anything secret leaves."""

from __future__ import annotations

import dataclasses
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from secured_ports import SecuredPort, impostor, secured_port

from unity_bridge.errors import RemoteError
from unity_bridge.remote import key_pair
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.dialing import (
    EXCHANGE,
    CertificateMismatch,
    TrainerConnection,
    TrainerUnreachable,
    authorization,
    find_trainer,
)
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.key_pair import KeyPair, KeyPairSource, make_key_pair
from unity_bridge.remote.tokens import TokenFile


def test_messages_pass_both_ways(port: SecuredPort) -> None:
    with TrainerConnection(JoinCode.parse(port.code.text())) as connection:
        assert [connection.exchange(b"%d" % number) for number in range(3)] == [b"0", b"1", b"2"]
    assert port.seen == [b"0", b"1", b"2"]


def test_a_server_with_another_certificate_never_gets_the_token(port: SecuredPort, tmp_path: Path) -> None:
    code = port.code
    with impostor(tmp_path) as swapped, TrainerConnection(code, f"127.0.0.1:{swapped.port}") as connection:
        for _ in range(3):
            with pytest.raises(CertificateMismatch, match="no token was sent"):
                connection.exchange(b"a message")
    assert swapped.handshakes == 3
    assert swapped.received == []


def test_a_server_that_takes_the_place_after_the_check_never_gets_the_token(
    port: SecuredPort, tmp_path: Path
) -> None:
    found = find_trainer(port.code)
    with impostor(tmp_path) as swapped:
        moved = dataclasses.replace(found, address=f"127.0.0.1:{swapped.port}")
        with moved.open_channel() as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(EXCHANGE)(b"", timeout=30, metadata=authorization(port.code.token))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert swapped.received == []


def test_the_first_address_with_the_right_certificate_is_taken(
    port: SecuredPort, tmp_path: Path, free_port: int
) -> None:
    with impostor(tmp_path) as other:
        addresses = (f"127.0.0.1:{free_port}", f"127.0.0.1:{other.port}", f"127.0.0.1:{port.port}")
        found = find_trainer(dataclasses.replace(port.code, addresses=addresses))
        assert found.address == f"127.0.0.1:{port.port}"
        with pytest.raises(CertificateMismatch) as caught:
            find_trainer(dataclasses.replace(port.code, addresses=addresses[:2]))
    assert all(address in str(caught.value) for address in addresses[:2])


def test_nobody_there(port: SecuredPort, free_port: int) -> None:
    for address in (f"127.0.0.1:{free_port}", "nowhere.invalid:5005"):
        with pytest.raises(TrainerUnreachable, match=f"^{address}: cannot connect: "):
            find_trainer(port.code, address)
    with pytest.raises(RemoteError, match="address: expected HOST:PORT"):
        find_trainer(port.code, "nowhere")


def test_a_server_without_tls(port: SecuredPort) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(b"SSH-2.0-OpenSSH_9.0\r\n")
                line.recv(2**16)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TrainerUnreachable, match=f"^{address}: no TLS: "):
            find_trainer(port.code, address)
        thread.join()


def test_a_certificate_that_has_ended_is_refused(
    certificates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: SecuredPort
) -> None:
    monkeypatch.setattr(key_pair, "LIFETIME", -timedelta(hours=1))
    pem = make_key_pair()
    pair = key_pair._key_pair(pem, pem)
    with impostor(tmp_path, pem) as ended, pytest.raises(CertificateMismatch, match="expired"):
        find_trainer(
            dataclasses.replace(port.code, fingerprint=pair.certificate.fingerprint),
            f"127.0.0.1:{ended.port}",
        )
    assert ended.received == []


def test_a_connection_that_broke_is_made_anew(user: Path, certificates: None) -> None:
    access = RemoteAccess.open()
    with secured_port(access) as first:
        connection = TrainerConnection(first.code, timeout_s=5)
        assert connection.exchange(b"to the first") == b"to the first"
    with pytest.raises((grpc.RpcError, TrainerUnreachable)):
        connection.exchange(b"to nobody")
    # The next run of the trainer, which has renewed its certificate meanwhile.
    path = user / "remote" / "trainer.pem"
    path.write_bytes(make_key_pair(path.read_bytes()))
    with secured_port(RemoteAccess.open(), port=first.port) as second:
        assert connection.exchange(b"to the second") == b"to the second"
        connection.close()
    assert second.seen == [b"to the second"]


class Signed(KeyPairSource):
    """A certificate that an authority has signed, for these names."""

    def __init__(self, common: str, *names: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")]))
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=30))
        )  # fmt: skip
        if names:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._pair = key_pair._key_pair(private, certificate)

    def load(self) -> KeyPair:
        return self._pair

    def version(self) -> object:
        return 0


@pytest.mark.parametrize(
    "names", [("host", "trainer.example.com"), ("host", "*.example.com"), ("trainer.lan",)], ids=str
)
def test_certificates_of_an_authority(certificates: None, user: Path, names: tuple[str, ...]) -> None:
    access = RemoteAccess(Signed(*names), TokenFile(user / "tokens"))
    with secured_port(access) as opened, TrainerConnection(opened.code) as connection:
        assert connection.exchange(b"x") == b"x"
