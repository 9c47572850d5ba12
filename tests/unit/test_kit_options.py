"""The option grammar that all stores share."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import ConfigurationError
from leasehold.kit import options
from leasehold.kit.options import TLS_OPTIONS, TLSFiles, read_options, read_tls

WAIT = options.duration("wait", 2.0, "how long", least=0.1, most=60)
CAREFUL = options.flag("careful", "whether")
COUNT = options.whole("count", 3, "how many", least=1, most=9)
KIND = options.choice("kind", ("rows", "session"), "which")
LABEL = options.text("label", "what it is called", takes="a word")
ALL: tuple[options.Option[Any], ...] = (WAIT, CAREFUL, COUNT, KIND, LABEL)


def test_an_option_that_was_not_given_has_its_default() -> None:
    values = read_options({}, ALL, "toy:")
    assert [values[option] for option in ALL] == [2.0, False, 3, "rows", None]
    assert WAIT not in values


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2), ("500ms", 0.5), ("1.5", 1.5), ("1m", 60), ("60", 60)])
def test_durations_are_written_as_everywhere_else(text: str, seconds: float) -> None:
    values = read_options({"wait": text}, ALL, "toy:")
    assert values[WAIT] == seconds
    assert WAIT in values


@pytest.mark.parametrize("text", ["", "0", "0.05", "61", "soon", "-1", "1e1", "inf", "nan", "2 parsecs", "٣"])
def test_a_duration_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="wait must"):
        read_options({"wait": text}, ALL, "toy:")


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False)])
def test_flags(text: str, value: bool) -> None:
    assert read_options({"careful": text}, ALL, "toy:")[CAREFUL] is value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("careful", "maybe", "careful must be yes or no, not 'maybe'"),
        ("count", "0", "count must be a whole number from 1 to 9, not '0'"),
        ("count", "²", "count must be a whole number from 1 to 9, not '²'"),
        ("kind", "files", "kind must be one of rows, session, not 'files'"),
        ("label", "", "label is empty; it takes a word"),
        ("waits", "1s", "toy: has no option 'waits'; did you mean wait? it takes careful, count, kind, label, wait"),
        ("colour", "1", "toy: has no option 'colour'; it takes careful, count, kind, label, wait"),
    ],
)
def test_what_is_refused_is_named_with_what_would_do(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_options({name: text}, ALL, "toy:")
    assert str(raised.value) == message


def test_an_old_name_is_refused_with_the_new_one() -> None:
    with pytest.raises(ConfigurationError, match="'patience'; it is called wait here"):
        read_options({"patience": "1"}, ALL, "toy:", {"patience": "wait"})


def test_a_store_without_options_says_so() -> None:
    with pytest.raises(ConfigurationError, match="'wait'; it takes none"):
        read_options({"wait": "1"}, (), "toy:")


def test_tls_files_belong_together_and_to_tls() -> None:
    given = read_options({"tls_cert": "a", "tls_key": "b", "tls_verify": "no"}, TLS_OPTIONS, "toy:")
    assert read_tls(given, used=True, secure_url="") == TLSFiles(cert="a", key="b", verify=False)
    assert read_tls(read_options({}, TLS_OPTIONS, "toy:"), used=False, secure_url="") is None
    with pytest.raises(ConfigurationError, match="tls_cert has no meaning without TLS; write toys://"):
        read_tls(given, used=False, secure_url="write toys://")
    with pytest.raises(ConfigurationError, match="needs its key"):
        read_tls(read_options({"tls_cert": "a"}, TLS_OPTIONS, "toy:"), used=True, secure_url="")
