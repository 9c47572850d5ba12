from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL

if TYPE_CHECKING:
    from collections.abc import Callable


def test_there_is_no_silent_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    with pytest.raises(ConfigurationError, match="LEASEHOLD_URL"):
        leasehold.connect()


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_URL", "memory://from-the-environment")
    with leasehold.connect() as client, client.lock("x").hold():
        with leasehold.connect("memory://from-the-environment") as same:
            assert same.lock("x").try_acquire() is None


def test_a_memory_store_is_private_unless_it_has_a_name() -> None:
    with leasehold.connect("memory://") as one, leasehold.connect("memory://") as two, one.lock("x").hold():
        assert two.lock("x").acquire(timeout=0).release()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host",
        "memory://a/b",
        "memory://a?x=1",
        "memory://h:1",
        "memory://u@h",
        "memory://#f",
        "memory://a,b",
        "memory://h:0",
        "memory://h:x",
        "memory://h:99999",
        "memory://::1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        leasehold.connect(url)


def test_schemes_of_every_kind_of_redis_are_named_to_who_asked_for_another() -> None:
    with pytest.raises(ConfigurationError, match=r"no store has the scheme 'rediss\+sentinal'") as caught:
        leasehold.connect("rediss+sentinal://h1/mymaster")
    for scheme in ("redis", "redis+sentinel", "redis+cluster", "redlock"):
        assert f"{scheme}," in str(caught.value)


def test_no_text_of_a_url_shows_its_password() -> None:
    url = StoreURL.parse("redis://user:hunter2@host:6379/0?password=hunter2")
    assert "hunter2" not in str(url)
    assert "hunter2" not in repr(url)
    assert str(url) == "redis://user@host:6379/0"
    with pytest.raises(ConfigurationError) as refused:
        leasehold.connect("nosuch://user:hunter2@host")
    assert "hunter2" not in str(refused.value)


def test_what_is_no_store_is_refused_by_its_type() -> None:
    with pytest.raises(ConfigurationError, match="dict"):
        leasehold.connect({})


@pytest.mark.parametrize("face", [leasehold.connect, leasehold.connect_async])
def test_options_beside_a_url_are_refused_because_the_url_says_them(face: Callable[..., object]) -> None:
    with pytest.raises(ConfigurationError, match="a URL says them itself"):
        face("redis://localhost", options={"acks": 1})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ack": 1}, r"no option 'ack'; did you mean acks\? it takes acks, "),
        ({"acks": [1]}, "acks must be a text, a number"),
        ({"acks": -1}, "whole number from 0 to 100"),
        ({"compat": 2}, "compat must be yes or no"),
        ({"prefix": "{a}"}, "braces"),
    ],
)
def test_wrong_options_of_a_client_of_the_users_own_are_refused_before_anything_is_sent(
    options: dict[str, object], complaint: str
) -> None:
    redis = importlib.import_module("redis")
    with pytest.raises(ConfigurationError, match=complaint):
        leasehold.connect(redis.Redis(port=1), options=options)


def test_a_url_may_name_several_hosts() -> None:
    url = StoreURL.parse("redis+cluster://u:secret@h1:7001,h2,[::1]:7003,[::2]/x")
    assert url.hosts == (("h1", 7001), ("h2", None), ("::1", 7003), ("::2", None))
    assert str(url) == "redis+cluster://u@h1:7001,h2,[::1]:7003,[::2]/x"
    with pytest.raises(ConfigurationError, match="one host"):
        url.refuse_several_hosts()
