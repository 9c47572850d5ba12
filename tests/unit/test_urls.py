from __future__ import annotations

import pytest

import leasehold
from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL


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
        leasehold.connect({})  # type: ignore[arg-type]


def test_a_url_may_name_several_hosts() -> None:
    url = StoreURL.parse("redis+cluster://u:secret@h1:7001,h2,[::1]:7003,[::2]/x")
    assert url.hosts == (("h1", 7001), ("h2", None), ("::1", 7003), ("::2", None))
    assert str(url) == "redis+cluster://u@h1:7001,h2,[::1]:7003,[::2]/x"
    with pytest.raises(ConfigurationError, match="one host"):
        url.refuse_several_hosts()
