"""Known bugs, put back into a copy of the library: the simulation is only as good as the bugs it catches.

`python -m verification.mutants` runs the simulation on each and fails if one survives.
"""

from verification.mutants.catalogue import CORE_MUTANTS, Mutant
from verification.mutants.catalogue_redis import REDIS_MUTANTS
from verification.mutants.runner import Verdict, apply, hunt

MUTANTS: tuple[Mutant, ...] = (*CORE_MUTANTS, *REDIS_MUTANTS)

__all__ = ["MUTANTS", "Mutant", "Verdict", "apply", "hunt"]
