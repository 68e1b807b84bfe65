"""How answers are written."""

import pytest

from holdfast.server.http.message import HTTPRequest, Response, Stream
from holdfast.server.http.responses import render, render_start

REQUEST = HTTPRequest("GET", "/", id="abc")


@pytest.mark.parametrize(
    "headers",
    [
        (("X", "a\r\nY: b"),),
        (("X", "a\nb"),),
        (("X", "a\0b"),),
        (("X", "\x7f"),),
        (("X", "snow \u2603"),),
        (("X: y", "a"),),
        (("X\r\nY", "a"),),
        (("", "a"),),
        (("content-Length", "3"),),
        (("Transfer-Encoding", "chunked"),),
    ],
)
def test_no_header_can_change_what_an_answer_means(headers):
    with pytest.raises(ValueError, match="header"):
        render(Response(200, b"{}", headers=headers), REQUEST, True)
    with pytest.raises(ValueError, match="header"):
        render_start(Stream(headers), REQUEST)


def test_a_content_type_cannot_either():
    with pytest.raises(ValueError, match="header"):
        render(Response(200, b"", "text/plain\r\nX: y"), REQUEST, True)


@pytest.mark.parametrize("status", [100, 199, 600, 0])
def test_only_final_statuses_are_answers(status):
    with pytest.raises(ValueError, match="no status"):
        render(Response(status), REQUEST, True)


def test_a_status_without_a_name_is_sent_all_the_same():
    assert render(Response(299), REQUEST, True).startswith(b"HTTP/1.1 299 Unknown\r\n")
