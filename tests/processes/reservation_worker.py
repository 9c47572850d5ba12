"""A process that sells tickets by reservations: `python -m tests.processes.reservation_worker URL TICKETS`.

It says "reserved KEY" after each reservation and waits for a line before it confirms, and "over" when all is sold.
"""

from __future__ import annotations

import sys
import time

from benchmarks.ticket_ways import RESERVATION, TicketOffice
from leasehold import ReservationExpired

HOLD = 2.0


def main() -> None:
    url, tickets = sys.argv[1], int(sys.argv[2])
    office = TicketOffice(RESERVATION, url, "", hold=HOLD)
    while not is_sold_out(office, tickets):
        key = office.reserve(1)
        if key is None:  # some may be held by a process that is no more
            time.sleep(0.1)
            continue
        print("reserved", key, flush=True)  # noqa: T201 - to the test
        sys.stdin.readline()
        try:
            office.confirm(1, key)
        except ReservationExpired:
            print("expired", key, flush=True)  # noqa: T201
    print("over", flush=True)  # noqa: T201
    office.close()


def is_sold_out(office: TicketOffice, tickets: int) -> bool:
    with office.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM sale").scalar_one()) >= tickets


if __name__ == "__main__":
    main()
