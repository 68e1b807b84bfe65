"""TLS with real certificates, which are replaced while connections are open."""

import logging
import shutil
import socket
import ssl
import subprocess

import pytest

from holdfast.errors import SettingsError
from holdfast.server.http import listener
from holdfast.server.http.tls import make_context


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Certificates:
    """Pairs of files, each signed by itself."""

    def __init__(self, folder):
        self.folder = folder
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"

    def make(self, name, *extra):
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2", *extra]
        about = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        openssl("req", *kind, *about, "-keyout", key, "-out", cert)
        return cert, key

    def install(self, name):
        cert, key = self.make(name, "-nodes")
        shutil.move(key, self.key)
        shutil.copy(cert, self.cert)
        return cert


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


def trusting(*authorities):
    context = ssl.create_default_context()
    for each in authorities:
        context.load_verify_locations(each)
    return context


def name_of(peer):
    return dict(pair for (pair,) in peer.sock.getpeercert()["subject"])["commonName"]


def test_requests_and_streams_over_tls(serve, certificates):
    ca = certificates.install("first")
    site = serve(make_context(str(certificates.cert), str(certificates.key)))
    body = b"x" * 500_000
    with site.connect(context=trusting(ca)) as peer:
        assert peer.sock.selected_alpn_protocol() is None
        assert peer.sock.version() in ("TLSv1.2", "TLSv1.3")
        answer = peer.ask("/", "POST", body=body)
        assert answer.json["body"].encode() == body
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert site.desk.seen[0].secure
        peer.get("/stream")
        peer.head()
        peer.read(13)
        site.call(site.desk.streams[0].send, b"data: x\n\n")
        assert peer.read(9) == b"data: x\n\n"
    assert site.desk.gone.wait(30)


def test_a_new_certificate_is_taken_up_while_connections_stay(serve, certificates, monkeypatch):
    monkeypatch.setattr(listener, "LOOK", 0.05)
    old = certificates.install("old")
    site = serve(make_context(str(certificates.cert), str(certificates.key)))
    with site.connect(context=trusting(old)) as before:
        assert name_of(before) == "old"
        new = certificates.install("new")
        both = trusting(old, new)

        def is_new():
            with site.connect(context=both) as peer:
                return name_of(peer) == "new" and peer.ask("/").status == 200

        while not is_new():
            pass
        assert before.ask("/").status == 200


def test_a_broken_certificate_changes_nothing(serve, certificates, caplog):
    ca = certificates.install("good")
    context = make_context(str(certificates.cert), str(certificates.key))
    site = serve(context)
    shutil.copy(certificates.make("foreign", "-nodes")[1], certificates.key)  # it does not fit
    with caplog.at_level(logging.INFO, "holdfast"):
        assert not site.call(context.reload_if_changed)
        assert not site.call(context.reload_if_changed)
    assert caplog.text.count("is not replaced") == 1
    with pytest.raises(SettingsError, match="no certificate with its key"):
        site.call(context.reload)
    certificates.cert.unlink()
    assert not site.call(context.reload_if_changed)
    with site.connect(context=trusting(ca)) as peer:
        assert (name_of(peer), peer.ask("/").status) == ("good", 200)
    certificates.install("better")
    assert site.call(context.reload_if_changed)


def test_clients_may_need_a_certificate(serve, certificates):
    ca = certificates.install("server")
    known, key = certificates.make("client", "-nodes")
    site = serve(make_context(str(certificates.cert), str(certificates.key), str(known)))
    context = trusting(ca)
    with (
        site.connect(context=context) as peer,
        pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
    ):
        peer.ask("/")  # with TLS 1.3 a client learns of it with its first answer
    context.load_cert_chain(known, key)
    with site.connect(context=context) as peer:
        assert peer.ask("/").status == 200
    (request,) = site.desk.seen
    assert request.peer_certificate["subject"] == ((("commonName", "client"),),)


def test_old_versions_are_refused(certificates):
    certificates.install("x")
    context = make_context(str(certificates.cert), str(certificates.key))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_handshake_has_to_come_in_time(serve, certificates):
    ca = certificates.install("x")
    site = serve(make_context(str(certificates.cert), str(certificates.key)), head_time=2.0)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as silent:
        assert silent.recv(1) == b""
    with site.connect(context=trusting(ca)) as peer:
        assert peer.ask("/").status == 200


def test_files_that_are_no_good_are_named(certificates, tmp_path):
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(SettingsError, match=r"missing\.pem cannot be read: No such file"):
        make_context(missing, missing)
    certificates.install("x")
    cert, key = str(certificates.cert), str(certificates.key)
    with pytest.raises(SettingsError, match="no certificate with its key"):
        make_context(key, cert)
    with pytest.raises(SettingsError, match="no certificates of authorities"):
        make_context(cert, key, key)
    locked_cert, locked = certificates.make("locked", "-passout", "pass:secret")
    with pytest.raises(SettingsError, match="encrypted"):
        make_context(str(locked_cert), str(locked))
