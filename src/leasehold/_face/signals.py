"""Leave in order when a signal ends the process: `client.release_on_signals`.

The handler is a plain one of the `signal` module in both faces. `loop.add_signal_handler` would replace what a
framework has installed, and there is no way to call that afterwards; a plain handler can be restored, and the signal
sent again, so that the program ends as it would have ended without us.

Blocking: the main thread stands still in the handler while another thread gives the locks back, so it does nothing
more under them. It stands still for a moment only if the signal found it inside this library: there it may have a
transaction or a lock that the release has to wait for. Async: a task gives the locks back.
"""

from __future__ import annotations

import atexit
import signal
import threading
from typing import TYPE_CHECKING, Any

from leasehold._core.open_clients import close_at_home
from leasehold._durations import seconds
from leasehold._face.departure import depart
from leasehold._log import logger
from leasehold._runtimes.threads import ThreadSignal, run
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable
    from types import FrameType

    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient

__all__ = ["ENDING", "ReleaseOnSignals"]

ENDING = (signal.SIGTERM, signal.SIGINT)
MOMENT = 0.3


class ReleaseOnSignals:
    """Handlers that give back all leases of a client, then let the program end; call it, or leave its block, to undo.

    A second signal ends the program at once.
    """

    def __init__(self, client: AsyncClient, numbers: Iterable[int], timeout: Duration) -> None:
        self._client = client
        self._runtime = client._runtime
        self._timeout = seconds(timeout, "timeout")
        self._loop = None if client._runtime.blocking else _running_loop()
        self._opened: list[OpenClient] = []  # what was closed
        self._done = client._runtime.signal()
        self._began = False
        self._passed_on = False
        self._handler_has_returned = False
        self._previous: dict[int, Any] = {}
        try:
            for number in numbers:
                self._install(signal.Signals(number))
        except BaseException:
            self()
            raise

    def __call__(self) -> None:
        """Undo: put the previous handlers back. In the main thread."""
        self._passed_on = True
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:  # else another one was put on top, and calls us
                signal.signal(number, previous)

    def __enter__(self) -> ReleaseOnSignals:
        return self

    def __exit__(self, *_: object) -> None:
        self()

    def __repr__(self) -> str:
        names = ", ".join(signal.Signals(number).name for number in self._previous)
        return f"<{type(self).__name__} {names or 'nothing'}>"

    def _install(self, number: signal.Signals) -> None:
        previous = signal.getsignal(number)
        if previous is None:
            raise ConfigurationError(f"{number.name} has a handler that is not Python's, which could not be called")
        if previous is signal.SIG_IGN:
            return  # what the caller ignores stays ignored (nohup, jobs in the background)
        try:
            signal.signal(number, self._handle)
        except ValueError:
            raise ConfigurationError(
                "release_on_signals() must be called in the main thread: no other one can have signal handlers"
            ) from None
        self._previous[number] = previous

    # --- in the main thread, when a signal has come

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._passed_on:  # undone, but a handler on top of this one calls it
            self._call_previous(number, frame)
        elif self._began:
            self._pass_on(number)  # a second signal
        else:
            self._began = True
            if self._loop is None:
                self._leave_by_a_thread(number, frame)
            else:
                self._leave_by_a_task(self._loop, number)

    def _leave_by_a_thread(self, number: int, frame: FrameType | None) -> None:
        now = self._runtime.now()
        try:
            self._runtime.spawn(self._leave(number, now + self._timeout), "leasehold leaving")
        except RuntimeError:  # the interpreter is shutting down
            self._pass_on(number)
            return
        patience = min(MOMENT, self._timeout) if _is_inside(frame) else self._timeout
        run(self._runtime.wait(self._done, now + patience))
        self._handler_has_returned = True  # before looking: `_leave` looks in the other order
        if self._done.is_set() or patience == self._timeout:
            self._pass_on(number)
        else:
            atexit.register(self._finish, number, now + self._timeout)

    def _leave_by_a_task(self, loop: AbstractEventLoop, number: int) -> None:
        def begin() -> None:
            self._runtime.spawn(self._leave(number, self._runtime.now() + self._timeout), "leasehold leaving")

        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop is closed
            self._pass_on(number)

    def _finish(self, number: int, deadline: float) -> None:
        """The program ends by itself meanwhile, perhaps by an error of the call that the signal found it in."""
        run(self._runtime.wait(self._done, deadline))
        self._pass_on(number)

    # --- in a thread or task of its own

    async def _leave(self, number: int, deadline: float) -> None:
        """Close the client; go on at the deadline also when that is not done: the store may be away."""
        closing = self._runtime.spawn(self._close(deadline), "leasehold closing")
        await closing.join(deadline)
        self._done.set()
        if self._loop is not None:
            self._loop.call_soon(self._pass_on, number)
        elif self._handler_has_returned:
            _send(number)  # to the handler, which passes it on

    async def _close(self, deadline: float) -> None:
        async def leave(opened: OpenClient) -> None:
            await depart(opened, deadline, freeze=True)
            await opened.close(deadline)

        self._opened = self._client._open_clients.take()
        try:
            await close_at_home(self._opened, leave, deadline)
        except Exception:
            logger.exception("the client could not be closed in order; what it holds is left to its ttl")

    # --- the end

    def _pass_on(self, number: int) -> None:
        """Restore the previous handlers, and send the signal again: the program ends as it would have without us."""
        if not self._passed_on:
            self()
            try:
                _send(number)
            finally:
                for opened in self._opened:  # the program goes on: calls that wait learn of the end now
                    opened.waiting_calls.close()

    def _call_previous(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, previous)
            _send(number)


def _send(number: int) -> None:
    """To the main thread, so that a wait there is interrupted."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(signal.Signals(number))  # `os.kill` would end the process on Windows, without any handler


def _is_inside(frame: FrameType | None) -> bool:
    """Whether the interrupted code is in this library; not if it only waits, as it then holds nothing."""
    if frame is not None and frame.f_code is ThreadSignal._wait_once.__code__:
        return False
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("leasehold."):
            return True
        frame = frame.f_back
    return False


def _running_loop() -> AbstractEventLoop:
    import asyncio  # noqa: PLC0415 - a blocking program never loads it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "release_on_signals() of an async client must be called on its running event loop"
        ) from None
