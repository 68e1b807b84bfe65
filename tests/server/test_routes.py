"""The table of routes: what a path names, and what there is not."""

import pytest

from holdfast.core.wire import ROUTES
from holdfast.errors import InvalidKey, RequestRefused
from holdfast.server.router import WrongMethod, match


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_found_by_its_path(route):
    path = route.path.replace("{key}", "a%2Fb").replace("{id}", "abc").replace("{file}", "app.js")
    path = path.replace("{instance}", "i-1")
    found, named = match(route.method, path)
    assert found is route
    if "{key}" in route.path:
        assert named == "a/b"


def test_names_are_not_used_twice():
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("key", ["..", ".", "acquire", "a b", "é", "100%", "a?b#c", "x" * 255])
def test_a_key_is_one_segment_whatever_it_is(key):
    from urllib.parse import quote

    assert match("POST", f"/v1/locks/{quote(key, safe='')}/acquire")[1] == key


@pytest.mark.parametrize(
    "path", ["/v2/locks", "/v1", "/v1/locks/a/b/c", "/v1/locks/a/eat", "", "//", "/v1/locks/"]
)
def test_a_path_that_is_none_is_told_so(path):
    with pytest.raises((RequestRefused, InvalidKey)) as caught:
        match("GET", path)
    assert "there is no" in str(caught.value) or "is empty" in str(caught.value)


def test_another_method_is_told_which_there_are():
    with pytest.raises(WrongMethod) as caught:
        match("DELETE", "/v1/locks")
    assert caught.value.allowed == "GET, HEAD"
    assert caught.value.status == 405
    assert match("HEAD", "/v1/locks")[0].name == "list"


@pytest.mark.parametrize("segment", ["%FF", "%C3%28", "a%00b", "", "x" * 256])
def test_a_key_that_is_none_is_refused(segment):
    with pytest.raises(InvalidKey):
        match("GET", f"/v1/locks/{segment}")
