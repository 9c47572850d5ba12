"""The pattern suite: what the patterns promise on every store that has what they need, run over store x runtime.

    from leasehold.testing import contract, patterns

    @pytest.mark.parametrize("case", patterns.CASES, ids=str)
    @pytest.mark.parametrize("driver", contract.DRIVERS)
    def test_patterns(case, driver):
        contract.check(case, MyHarness(), driver())

A case works with the same `Lab` as a case of the contract. There are no skips: where the store does not declare what a
pattern needs, the case checks that the capability is really absent.
"""

from leasehold.testing.patterns.cases import CASES
from leasehold.testing.patterns.registry import pattern_case

__all__ = ["CASES", "pattern_case"]
