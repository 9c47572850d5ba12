"""The option grammar that all stores share."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import ConfigurationError
from leasehold.kit import options
from leasehold.kit.options import TLS_OPTIONS, TLSFiles, read_options, read_tls
from leasehold.values import MAX_FENCE

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


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE", "Yes", "0", "false", "no", "off", "No"])
def test_a_flag_has_eight_words_in_whatever_case(word: str) -> None:
    expected = word.lower() in ("1", "true", "yes", "on")
    for default in (True, False):
        option = options.flag("careful", "whether", default=default)
        assert read_options({"careful": word}, (option,), "toy:")[option] is expected
        assert read_options({}, (option,), "toy:")[option] is default


@pytest.mark.parametrize(("text", "fits"), [("0", False), ("1", True), ("9", True), ("10", False), ("-1", False)])
def test_the_bounds_of_a_number_belong_to_it(text: str, fits: bool) -> None:
    if fits:
        assert read_options({"count": text}, ALL, "toy:")[COUNT] == int(text)
    else:
        with pytest.raises(ConfigurationError, match="count must be"):
            read_options({"count": text}, ALL, "toy:")


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.1", 0.1), ("0.0999", None), ("60.001", None), ("100ms", 0.1), ("1h", None)]
)
def test_the_bounds_of_a_duration_belong_to_it(text: str, seconds: float | None) -> None:
    if seconds is not None:
        assert read_options({"wait": text}, ALL, "toy:")[WAIT] == seconds
    else:
        with pytest.raises(ConfigurationError, match=r"wait must be from 0.1 s to 60 s"):
            read_options({"wait": text}, ALL, "toy:")


def test_durations_are_from_a_hundredth_of_a_second_to_an_hour_if_nothing_else_is_said() -> None:
    usual = options.duration("wait", 1.0, "how long")
    for text, fits in (("0.01", True), ("0.009", False), ("3600", True), ("3601", False)):
        if fits:
            assert read_options({"wait": text}, (usual,), "toy:")[usual] == float(text)
        else:
            with pytest.raises(ConfigurationError):
                read_options({"wait": text}, (usual,), "toy:")


def test_a_text_is_checked_by_its_own_rule() -> None:
    def check(value: str) -> str:
        if value == "bad":
            raise ConfigurationError("not this one")
        return value.upper()

    option = options.text("label", "what", takes="a word", check=check)
    assert read_options({"label": "good"}, (option,), "toy:")[option] == "GOOD"
    with pytest.raises(ConfigurationError, match="not this one"):
        read_options({"label": "bad"}, (option,), "toy:")


def test_the_floor_of_the_fences_leaves_room_for_a_trillion() -> None:
    most = MAX_FENCE - 2**40
    floor = options.FENCE_FLOOR
    for text, fits in ((str(most), True), (str(most + 1), False), ("0", True)):
        if fits:
            assert read_options({"fence_floor": text}, (floor,), "toy:")[floor] == int(text)
        else:
            with pytest.raises(ConfigurationError, match="fence_floor must be"):
                read_options({"fence_floor": text}, (floor,), "toy:")


def test_every_option_of_tls_arrives_where_it_belongs() -> None:
    given = {"tls_ca": "a", "tls_cert": "c", "tls_key": "k", "tls_key_password": "w", "tls_verify": "no"}
    values = read_options(given, TLS_OPTIONS, "toy:")
    assert read_tls(values, used=True, secure_url="") == TLSFiles("a", "c", "k", "w", verify=False)
    assert read_tls(read_options({}, TLS_OPTIONS, "toy:"), used=True, secure_url="") == TLSFiles()
    assert TLSFiles().verify is True
    for name, value in given.items():
        with pytest.raises(ConfigurationError, match=f"^{name} has no meaning without TLS"):
            read_tls(read_options({name: value}, TLS_OPTIONS, "toy:"), used=False, secure_url="x")
    with pytest.raises(ConfigurationError, match="a key its certificate"):
        read_tls(read_options({"tls_key": "k"}, TLS_OPTIONS, "toy:"), used=True, secure_url="")
