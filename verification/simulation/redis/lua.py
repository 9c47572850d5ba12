"""Runs the shipped scripts: Lua 5.1 with what Redis adds to it, and Redis' rules for what goes in and out.

It knows how values are converted, and calls whatever `execute` it is given for each command; nothing of locks. As in
Redis, a script can make no global variable, and a number given to a command is written with all its digits, while the
language's own `..` and `tostring` write only fourteen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from verification.simulation.redis.database import CommandError, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ScriptEngine"]

_SANDBOX = b"""
local execute = ...
local function failed(reply) return type(reply) == 'table' and rawget(reply, 'err') ~= nil end
redis = {
  pcall = function(...) return execute(...) end,
  call = function(...)
    local reply = execute(...)
    if failed(reply) then error(reply.err, 0) end
    return reply
  end,
}
KEYS, ARGV = {}, {}
local locked = {KEYS = true, ARGV = true}
setmetatable(_G, {
  __newindex = function(_, name) error('Attempt to modify a readonly table: ' .. tostring(name), 2) end,
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. tostring(name), 2) end,
})
"""


class ScriptEngine:
    """One interpreter; each text is compiled once."""

    def __init__(self, execute: Callable[[list[bytes]], Any]) -> None:
        self._execute = execute
        self._lua: Any = import_module("lupa.lua51").LuaRuntime(encoding=None, register_eval=False)
        self._error: type[Exception] = import_module("lupa.lua51").LuaError
        self._globals = self._lua.globals()
        self._lua.execute(_SANDBOX, self._called)
        self._compiled: dict[bytes, Any] = {}
        self._table = self._lua.table_from

    def run(self, text: bytes, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """The script's reply; raises `CommandError` when it fails."""
        function = self._compiled.get(text)
        if function is None:
            try:
                function = self._compiled[text] = self._lua.compile(text)
            except self._error as error:
                raise CommandError(f"ERR Error compiling script: {error}") from None
        self._globals[b"KEYS"] = self._table(keys)
        self._globals[b"ARGV"] = self._table(arguments)
        try:
            return self._reply(function())
        except self._error as error:
            raise CommandError(_words(error)) from None

    def _called(self, *values: Any) -> Any:
        """`redis.call` and `redis.pcall`: a command with its arguments as text; the reply as Lua sees it."""
        try:
            return self._inner(self._execute([_text(value) for value in values]))
        except CommandError as error:
            return self._lua.table_from({b"err": str(error).encode()})

    def _inner(self, reply: Any) -> Any:
        if reply is None:
            return False
        if isinstance(reply, Status):
            return self._lua.table_from({b"ok": bytes(reply)})
        if isinstance(reply, list):
            return self._table([self._inner(each) for each in reply])
        return reply

    def _reply(self, value: Any) -> Any:
        """What the client gets: integers cut off, false is nil, an array ends at its first nil."""
        match value:
            case None | False:
                return None
            case True:
                return 1
            case int():
                return value
            case float():
                return int(value)
            case bytes():
                return value
        if value[b"err"] is not None:
            raise CommandError(value[b"err"].decode())
        if value[b"ok"] is not None:
            return Status(value[b"ok"])
        replies = []
        place = 1
        while (each := value[place]) is not None:
            replies.append(self._reply(each))
            place += 1
        return replies


def _text(value: Any) -> bytes:
    """An argument of a command: a number has all its digits, anything but numbers and strings is refused."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CommandError("ERR Lua redis lib command arguments must be strings or integers")
    return b"%.17g" % value


def _words(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    first = text.split("\n", 1)[0]
    return first if first[:1].isupper() and first.split(" ", 1)[0].isupper() else f"ERR {first}"
