"""Bugs that were written from the sources alone, without a look at the tests, and that none of them saw."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["BLIND_MUTANTS"]

BLIND_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "poll-last-pause-for-nothing",
        "a call that polls sleeps until its timeout and fails without another look: a lock freed meanwhile is missed",
        "_core/acquire.py",
        "min(now + pause, self._deadline), None)\n        return tenure\n",
        "min(now + pause, self._deadline), None)\n            self.go_on()\n        return tenure\n",
        ("tests/unit/test_calls_step_by_step.py",),
    ),
    Mutant(
        "blind-4-core-last-pause-beyond-the-deadline",
        "a call whose store is away ends up to a second after its timeout",
        "_core/attempt.py",
        "            pause = min(pause, self._limit - now)\n",
        "",
        ("tests/unit/test_core_background.py::test_the_last_pause_of_a_call_whose_store_is_away_ends_at_its_deadline",),
    ),
    Mutant(
        "blind-4-face-repeated-call-without-the-lock",
        "the call that on_busy puts on a queue runs without the lock when it is repeated, in the async face",
        "_face/client.py",
        "call = (partial(under_lock, *args, **kwargs),) if with_call else ()",
        "call = (partial(function, *args, **kwargs),) if with_call else ()",
        ("tests/faces/test_busy.py::test_on_an_event_loop_a_decorated_call_waits_as_it_was_told",),
    ),
    Mutant(
        "blind-4-election-observer-outlives-run",
        "after run has ended, its observer goes on asking the store and calling on_new_leader",
        "_patterns/election.py",
        "                await self._pause()\n        finally:\n            watch.stop()\n",
        "                await self._pause()\n        finally:\n            pass\n",
        ("tests/faces/test_election.py::test_when_run_has_ended_nobody_looks_for_leaders_any_more",),
    ),
    Mutant(
        "blind-4-asgi-only-the-first-chunk",
        "a request body that comes in several messages reaches the application without its end",
        "_patterns/idempotency_asgi.py",
        '                break\n        return b"".join(parts)\n',
        "                break\n        return parts[0]\n",
        ("tests/patterns/idempotency/test_asgi.py::test_a_body_that_comes_in_parts_reaches_the_application_whole",),
    ),
    Mutant(
        "blind-4-pattern-retries-beyond-its-time",
        "a read or write of a record that the store does not answer takes up to a second longer than its time",
        "_patterns/retry.py",
        "runtime.now() + pause >= until",
        "runtime.now() >= until",
        (
            "tests/faces/test_idempotency.py::test_a_store_that_is_away_is_not_asked_again_where_the_pause_would_outlast_the_time",
        ),
    ),
    Mutant(
        "blind-4-cli-audit-without-the-person",
        "the audit of break under sudo names root only, and not who used sudo",
        "cli/break_lock.py",
        'return f"{user}@{os.uname().nodename}" + (f", sudo from {caller}" if caller else "")',
        'return f"{user}@{os.uname().nodename}"',
        ("tests/unit/test_cli_output.py::test_an_order_under_sudo_names_the_person_behind_it",),
    ),
    Mutant(
        "blind-4-redis-list-without-queues",
        "ls does not show a name whose holder is gone while others wait for it",
        "_backends/redis/keys.py",
        'return _unquoted(body) if brace and part in ("", ":q", f":x:{PAUSED}") else None',
        'return _unquoted(body) if brace and part in ("", f":x:{PAUSED}") else None',
        ("tests/unit/test_store_inspect.py::test_a_name_of_redis_is_listed_for_its_holders_its_waiters_and_its_pause",),
    ),
    Mutant(
        "blind-4-redis-read-fence-kept-for-ever",
        "a record key that was only read under a fence never expires: keys pile up on the server",
        "_backends/redis/scripts/read_record.lua",
        "  redis.call('PEXPIREAT', KEYS[1], text(math.max(now, ends, math.floor(fence / 1000)) + 86400000))\n",
        "",
        ("tests/stores/redis/test_redis_resources.py::test_no_key_stays_for_ever",),
    ),
    Mutant(
        "blind-4-nats-changed-bucket-is-not-noticed",
        "a bucket that was changed so that its messages expire is used on: locks vanish while they are held",
        "_backends/nats/documents.py",
        "        if config != self._config:\n",
        "        if self._config is None:\n",
        ("tests/unit/test_store_inspect.py::test_a_bucket_of_nats_that_was_changed_is_looked_at_again",),
    ),
    Mutant(
        "blind-4-etcd-list-repeats-a-key",
        "a list of more locks than fit into a page shows the last lock of each page twice",
        "_backends/etcd/inspect.py",
        'start, revision = page.found[-1].key + b"\\x00", page.header.revision',
        "start, revision = page.found[-1].key, page.header.revision",
        ("tests/unit/test_store_inspect.py::test_a_list_of_etcd_goes_on_behind_the_last_key_of_each_page",),
    ),
    Mutant(
        "blind-4-etcd-record-leases-pile-up",
        "every write of a record leaves the lease of the value before it on the server, until its ttl is over",
        "_backends/etcd/records.py",
        "                if stored.value is not None:\n"
        "                    await self._revoke(stored.value.lease)\n                return True\n",
        "                return True\n",
        (
            "tests/stores/etcd/test_etcd_clients.py::test_what_is_written_again_and_again_has_one_lease_for_its_value_and_one_for_its_fence",
        ),
    ),
    Mutant(
        "blind-4-zookeeper-waiting-counts-as-holding",
        "inspect counts the time that a holder has waited as time that it has held the lock",
        "_backends/zookeeper/inspect.py",
        "since = stat.mtime if data.granted and data.broken is None else stat.ctime",
        "since = stat.ctime",
        ("tests/unit/test_store_inspect.py::test_a_holder_of_zookeeper_holds_since_its_grant_was_written",),
    ),
    Mutant(
        "blind-4-postgres-place-lives-a-ttl",
        "a waiter that was killed stands in the queue for its whole ttl, and all behind it wait",
        "_backends/postgres/sql/verbs.sql",
        "                           at + make_interval(secs => least(the_ttl, 3)), false, the_channel, NULL);\n"
        "    verdict := 'placed';\n",
        "                           at + make_interval(secs => the_ttl), false, the_channel, NULL);\n"
        "    verdict := 'placed';\n",
        ("tests/stores/postgres/test_postgres_grants.py::test_place_lives_for_three_seconds_however_long_the_ttl_is",),
    ),
    Mutant(
        "blind-4-core-close-without-pauses",
        "closing a client while the store is away asks it thousands of times a second to clean up",
        "_core/cleanup.py",
        "        self._closing = True\n        self._signal.set()\n",
        "        self._signal.set()\n",
        ("tests/unit/test_core_background.py::test_closing_tries_to_clean_up_with_pauses",),
    ),
    Mutant(
        "blind-4-kit-documents-of-unused-names",
        "a withdrawal, a release or a renewal for a name that nobody uses makes a document, which stays",
        "kit/documents.py",
        "            if value is None and name.rows.is_idle and not name.fence:\n                return answer, None\n",
        "",
        ("tests/unit/test_kit_documents.py::test_a_name_that_nobody_uses_gets_no_document",),
    ),
    Mutant(
        "blind-4-face-ended-block-hears-of-a-loss",
        "a block that has ended is told of a later loss of the lease that it had re-entered",
        "_face/hold.py",
        "        lease._unwatch(self)  # first: what comes now must not be interrupted by a loss\n",
        "",
        (
            "tests/faces/test_leases.py::test_a_block_that_has_ended_is_not_told_of_the_loss_of_the_lease_that_it_re_entered",
        ),
    ),
    Mutant(
        "blind-4-sql-wrapped-errors-are-not-retried",
        "a serialization failure that SQLAlchemy wraps is not recognised: the transaction is not run again",
        "sql/errors.py",
        'following = getattr(following, "orig", None) or following.__cause__',
        "following = following.__cause__",
        ("tests/unit/test_sql_errors.py",),
    ),
)
