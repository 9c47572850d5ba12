"""Known bugs, put back into a copy of the library: tests are only as good as the bugs they catch.

`python -m verification.mutants` hunts each with the simulation and the contract, or with the tests that it names, and
fails if one survives.
"""

from verification.mutants.catalogue import CORE_MUTANTS, Mutant
from verification.mutants.catalogue_advice import ADVICE_MUTANTS
from verification.mutants.catalogue_asyncpg import ASYNCPG_MUTANTS
from verification.mutants.catalogue_blind import BLIND_MUTANTS
from verification.mutants.catalogue_cache import CACHE_MUTANTS
from verification.mutants.catalogue_cli import CLI_MUTANTS
from verification.mutants.catalogue_dashboard import DASHBOARD_MUTANTS
from verification.mutants.catalogue_election import ELECTION_MUTANTS
from verification.mutants.catalogue_etcd import ETCD_MUTANTS
from verification.mutants.catalogue_faces import FACES_MUTANTS
from verification.mutants.catalogue_idempotency import IDEMPOTENCY_MUTANTS
from verification.mutants.catalogue_integrations import INTEGRATIONS_MUTANTS
from verification.mutants.catalogue_jobs import JOBS_MUTANTS
from verification.mutants.catalogue_kit import KIT_MUTANTS
from verification.mutants.catalogue_leaving import LEAVING_MUTANTS
from verification.mutants.catalogue_local_queue import LOCAL_QUEUE_MUTANTS
from verification.mutants.catalogue_mysql import MYSQL_MUTANTS
from verification.mutants.catalogue_mysql_guard import MYSQL_GUARD_MUTANTS
from verification.mutants.catalogue_nats import NATS_MUTANTS
from verification.mutants.catalogue_once import ONCE_MUTANTS
from verification.mutants.catalogue_optimistic import OPTIMISTIC_MUTANTS
from verification.mutants.catalogue_partitions import PARTITIONS_MUTANTS
from verification.mutants.catalogue_postgres import POSTGRES_MUTANTS
from verification.mutants.catalogue_queue import QUEUE_MUTANTS
from verification.mutants.catalogue_redis import REDIS_MUTANTS
from verification.mutants.catalogue_redis_store import REDIS_STORE_MUTANTS
from verification.mutants.catalogue_redlock import REDLOCK_MUTANTS
from verification.mutants.catalogue_reservations import RESERVATION_MUTANTS
from verification.mutants.catalogue_simulated import SIMULATED_MUTANTS
from verification.mutants.catalogue_sql_idempotency import SQL_IDEMPOTENCY_MUTANTS
from verification.mutants.catalogue_sqlite import SQLITE_MUTANTS
from verification.mutants.catalogue_sweep import SWEEP_MUTANTS
from verification.mutants.catalogue_telemetry import TELEMETRY_MUTANTS
from verification.mutants.catalogue_time import TIME_MUTANTS
from verification.mutants.catalogue_zookeeper import ZOOKEEPER_MUTANTS
from verification.mutants.runner import Verdict, apply, hunt

MUTANTS: tuple[Mutant, ...] = (
    *CORE_MUTANTS,
    *TIME_MUTANTS,
    *REDIS_MUTANTS,
    *FACES_MUTANTS,
    *KIT_MUTANTS,
    *REDIS_STORE_MUTANTS,
    *REDLOCK_MUTANTS,
    *ETCD_MUTANTS,
    *ZOOKEEPER_MUTANTS,
    *NATS_MUTANTS,
    *MYSQL_MUTANTS,
    *PARTITIONS_MUTANTS,
    *POSTGRES_MUTANTS,
    *ASYNCPG_MUTANTS,
    *SQL_IDEMPOTENCY_MUTANTS,
    *MYSQL_GUARD_MUTANTS,
    *OPTIMISTIC_MUTANTS,
    *QUEUE_MUTANTS,
    *SQLITE_MUTANTS,
    *RESERVATION_MUTANTS,
    *CLI_MUTANTS,
    *ADVICE_MUTANTS,
    *IDEMPOTENCY_MUTANTS,
    *CACHE_MUTANTS,
    *ELECTION_MUTANTS,
    *LEAVING_MUTANTS,
    *LOCAL_QUEUE_MUTANTS,
    *JOBS_MUTANTS,
    *ONCE_MUTANTS,
    *INTEGRATIONS_MUTANTS,
    *TELEMETRY_MUTANTS,
    *DASHBOARD_MUTANTS,
    *BLIND_MUTANTS,
    *SWEEP_MUTANTS,
    *SIMULATED_MUTANTS,
)

__all__ = ["MUTANTS", "Mutant", "Verdict", "apply", "hunt"]
