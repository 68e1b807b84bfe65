"""https://: whom a client trusts, who it is, and what it says when one side does not trust the other."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.core import requests as r
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from tests.server.scripted import Scripted, answering, until

CLIENT = r.Client("i-1", "alpha", 101)
ACQUIRE = r.Acquire("nightly", "a-1", "ann", 30.0, CLIENT)


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.cert = folder / "ca.pem"
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
        )

    def sign(self, name: str, *, password: str = "") -> tuple[Path, Path]:
        """Return the files of a new certificate for the host *name*, and of its key."""
        protected = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        kind = "IP" if name[0].isdigit() else "DNS"
        (self.folder / "ext").write_text(f"subjectAltName={kind}:{name}\nauthorityKeyIdentifier=keyid\n")
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *protected),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "request.pem"),
        )
        self._openssl(
            *("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"),
            *("-CAcreateserial", "-extfile", "ext", "-out", f"{name}.pem"),
        )
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("missing: openssl, from the package openssl")
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("127.0.0.1")


def server_context(certificate: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[Scripted]:
    with Scripted(server_context(certificate)) as server:
        yield server


@pytest.fixture
def strict_server(certificate: tuple[Path, Path], authority: Authority) -> Iterator[Scripted]:
    """One that lets nobody in without a certificate of the authority's."""
    with Scripted(server_context(certificate, authority.cert)) as server:
        yield server


@pytest.fixture
def open_at() -> Iterator[Callable[[str], Store]]:
    opened: list[Store] = []

    def open_at(url: str) -> Store:
        store = open_store(url, StoreOptions(CLIENT))
        opened.append(store)
        store.listen(lambda _: None)
        store.open()
        return store

    yield open_at
    for store in opened:
        store.close()


def test_requests_and_signals_over_tls(server, authority, open_at):
    store = open_at(f"https://127.0.0.1:{server.port}?ca={authority.cert}")
    store.be_reachable()
    for _ in range(3):
        assert store.execute(ACQUIRE) == r.Granted(7, 30.0)
    heard = [server.next("acquire") for _ in range(3)]
    assert {each.body["client"]["instance"] for each in heard} == {"s1/2"}
    assert server.connections == 2  # one is kept, one listens


def test_a_certificate_of_nobody_we_know_is_not_trusted(server, open_at):
    with pytest.raises(
        errors.StoreMisconfigured, match=r"is not to be trusted: .*; name the file .* with ca="
    ):
        open_at(f"https://127.0.0.1:{server.port}")


def test_a_certificate_of_another_host_is_not_trusted(server, authority, open_at):
    with pytest.raises(errors.StoreMisconfigured, match="is not to be trusted: Hostname mismatch"):
        open_at(f"https://localhost:{server.port}?ca={authority.cert}")


def test_a_server_without_tls_is_told_from_one_that_is_down(open_at):
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        url = f"https://127.0.0.1:{port}"
        with pytest.raises(errors.StoreMisconfigured, match="does not speak TLS; is it an http"):
            open_at(url)


def test_a_server_that_speaks_tls_is_told_from_one_that_does_not(open_at):
    alert = b"\x15\x03\x03\x00\x02\x02\x16"  # a fatal one: not what was expected
    with answering(alert) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(errors.StoreMisconfigured, match="it sent TLS, as over https://"):
            open_at(url)


def test_a_handshake_that_breaks_off_means_that_nothing_was_done(open_at, authority):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    url = f"https://127.0.0.1:{port}?ca={authority.cert}&connect_timeout=0.2"
    with listener, pytest.raises(errors.StoreUnavailable, match=r"no TLS connection to .*: timed out"):
        open_at(url)  # it is in the listener's queue, where nobody shakes hands


def test_our_certificate_lets_us_in(strict_server, authority, open_at):
    cert, key = authority.sign("worker")
    url = f"https://127.0.0.1:{strict_server.port}?ca={authority.cert}&cert={cert}"
    store = open_at(f"{url}&key={key}")
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)
    both = authority.folder / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    open_at(f"https://127.0.0.1:{strict_server.port}?ca={authority.cert}&cert={both}")


def test_a_server_that_wants_our_certificate_says_so(strict_server, authority, open_at, tmp_path):
    """It says so after we have asked; but it has not listened."""
    url = f"https://127.0.0.1:{strict_server.port}?ca={authority.cert}"
    with pytest.raises(errors.StoreError) as caught:
        open_at(url)
    # The server may close before its complaint is read; then all that is known is that it hung up.
    assert isinstance(caught.value, errors.StoreMisconfigured | errors.StoreUnavailable)
    cert, key = Authority(tmp_path / "theirs").sign("worker")
    with pytest.raises(errors.StoreError) as caught:
        open_at(f"{url}&cert={cert}&key={key}")
    assert isinstance(caught.value, errors.StoreMisconfigured | errors.StoreUnavailable)


def test_a_complaint_about_our_certificate_is_explained():
    from holdfast.stores.http.options import read_url
    from holdfast.stores.http.tls import refused, translate

    options, _ = read_url("https://host")
    for reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"):
        error = ssl.SSLError(1, "x")
        error.reason = reason
        told = refused(error, options)
        assert told is not None
        assert "does not accept our certificate" in str(told)
        assert type(translate(error, options)) is errors.StoreMisconfigured
    error = ssl.SSLError(1, "x")
    error.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert refused(error, options) is None
    assert type(translate(error, options)) is errors.StoreUnavailable


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("ca={folder}/none.pem", "none.pem cannot be read: No such file"),
        ("ca={folder}/ext", "ext has no certificates that can be read"),
        ("cert={folder}/ca.pem&key={folder}/worker.key", "cannot be used with the key"),
        ("cert={folder}/locked.pem&key={folder}/locked.key", "must be its own and have no password"),
    ],
)
def test_files_that_cannot_be_used_are_named(server, authority, open_at, options, match):
    authority.sign("worker")
    authority.sign("locked", password="secret")
    with pytest.raises(errors.StoreMisconfigured, match=match):
        open_at(f"https://127.0.0.1:{server.port}?{options.format(folder=authority.folder)}")


def test_certificates_that_were_renewed_are_read_again(strict_server, authority, open_at, tmp_path):
    cert, key = (shutil.copy(file, tmp_path) for file in authority.sign("worker"))
    store = open_at(f"https://127.0.0.1:{strict_server.port}?ca={authority.cert}&cert={cert}&key={key}")
    Path(cert).write_text("not a certificate any more")
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)  # on the connection that is there
    (kept,) = store._pool._idle
    strict_server.close_all()
    until(lambda: not kept.is_alive())
    with pytest.raises(errors.StoreMisconfigured, match="cannot be used"):
        store.execute(ACQUIRE)
    for file in authority.sign("worker"):
        shutil.copy(file, tmp_path)
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)
