from __future__ import annotations

import logging
import os
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from unity_bridge.errors import RemoteError
from unity_bridge.remote import key_pair
from unity_bridge.remote.certificate import Certificate
from unity_bridge.remote.key_pair import GivenKeyPair, OwnKeyPair, make_key_pair

PEM_START = b"-----BEGIN CERTIFICATE-----"


def parts(pem: bytes, folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate and its key as two files."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    at = pem.index(PEM_START)
    certificate.write_bytes(pem[at:])
    key.write_bytes(pem[:at])
    key.chmod(0o600)
    return certificate, key


def test_what_is_read_of_a_certificate_is_what_it_says(certificates: None) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x" * 60)])
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        for year in (2049, 2050):  # the last of one kind of date, the first of another
            ends = datetime(year, 6, 30, 12, 34, 56, tzinfo=UTC)
            made = (
                x509.CertificateBuilder()
                .subject_name(name).issuer_name(name).public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(ends)
                .sign(key, hashes.SHA256())
            )  # fmt: skip
            der = serialization.Encoding.DER
            info = key.public_key().public_bytes(der, serialization.PublicFormat.SubjectPublicKeyInfo)
            digest = hashes.Hash(hashes.SHA256())
            digest.update(info)
            read = Certificate.read(made.public_bytes(der))
            assert (read.ends, read.fingerprint) == (ends, digest.finalize())


def test_no_part_of_a_certificate_is_read(certificates: None) -> None:
    pem = make_key_pair().decode()
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(PEM_START.decode()) :])
    for length in range(len(der)):
        with pytest.raises(ValueError, match=r"not an X\.509 certificate"):
            Certificate.read(der[:length])


def test_a_key_is_made_once_and_only_its_user_may_read_it(certificates: None, user: Path) -> None:
    path = user / "remote" / "trainer.pem"
    made = OwnKeyPair(path).load()
    assert OwnKeyPair(path).load() == made
    assert made.certificate.ends - datetime.now(UTC) > timedelta(days=364)
    assert [each.name for each in path.parent.iterdir()] == ["trainer.pem"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_trainers_that_make_it_at_once_have_the_same(
    certificates: None, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = user / "trainer.pem"
    other: list[key_pair.KeyPair] = []

    def make_while_another_does() -> bytes:
        monkeypatch.undo()
        other.append(OwnKeyPair(path).load())
        return make_key_pair()

    monkeypatch.setattr(key_pair, "make_key_pair", make_while_another_does)
    assert OwnKeyPair(path).load() == other[0]


def test_a_certificate_is_renewed_in_time_for_the_same_key(
    certificates: None, user: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = OwnKeyPair(user / "trainer.pem")
    monkeypatch.setattr(key_pair, "LIFETIME", key_pair.RENEWAL + timedelta(minutes=1))
    first = source.load()
    assert source.load() == first
    monkeypatch.setattr(key_pair, "RENEWAL", key_pair.RENEWAL + timedelta(minutes=2))
    monkeypatch.setattr(key_pair, "LIFETIME", timedelta(days=365))
    with caplog.at_level(logging.INFO):
        second = source.load()
    assert second.certificate.ends > first.certificate.ends
    assert second.certificate.fingerprint == first.certificate.fingerprint
    assert caplog.messages == [
        f"The certificate is renewed until {second.certificate.ends:%Y-%m-%d}, for the same key."
    ]


def test_without_the_package_a_certificate_cannot_be_made(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(RemoteError) as caught:
        OwnKeyPair(user / "trainer.pem").load()
    for way in ('pip install -e ".[remote]"', "--tls-cert", "--insecure-listen"):
        assert way in str(caught.value)
    assert not user.exists()


def test_files_of_a_user(certificates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem, other = make_key_pair(), make_key_pair()
    certificate, key = parts(pem, tmp_path, "ours")
    monkeypatch.setitem(sys.modules, "cryptography", None)  # to read them it is not needed
    loaded = GivenKeyPair(certificate, key).load()
    at = pem.index(PEM_START)
    assert (loaded.key, loaded.chain) == (pem[:at], pem[at:])
    certificate.write_bytes(pem[at:] + other[other.index(PEM_START) :])
    chain = GivenKeyPair(certificate, key).load()
    assert chain.certificate == loaded.certificate, "the first one is the server's"
    assert chain.chain.count(PEM_START) == 2


def test_an_ended_certificate_of_a_user_is_warned_of(
    certificates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = parts(make_key_pair(), tmp_path, "mine")
    GivenKeyPair(certificate, key).load()
    assert caplog.messages == []
    today = datetime.now(UTC).date()
    monkeypatch.setattr(key_pair, "LIFETIME", timedelta(seconds=0))
    certificate, key = parts(make_key_pair(), tmp_path, "ended")
    source = GivenKeyPair(certificate, key)
    source.load()
    assert caplog.messages == [f"'{certificate}' has ended on {today}: every client refuses it."]
    assert source.version()[-1] in (today, today + timedelta(days=1)), "it is looked at again every day"


def test_files_of_a_user_that_cannot_be_used(certificates: None, tmp_path: Path) -> None:
    certificate, key = parts(make_key_pair(), tmp_path, "ours")
    _, other_key = parts(make_key_pair(), tmp_path, "other")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for given in ((certificate, other_key), (key, certificate), (empty, key), (certificate, empty)):
        with pytest.raises(RemoteError, match="expected a certificate and its private key in PEM") as caught:
            GivenKeyPair(*given).load()
        assert str(given[0]) in str(caught.value)
    for given in ((tmp_path / "none", key), (certificate, tmp_path / "none")):
        with pytest.raises(RemoteError, match=r"none': cannot read it: No such file"):
            GivenKeyPair(*given).load()


def test_a_key_with_a_password_is_refused_without_asking_for_it(certificates: None, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = parts(make_key_pair(), tmp_path, "ours")
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret")))
    with pytest.raises(RemoteError, match="in PEM, without a password"):
        GivenKeyPair(certificate, key).load()
