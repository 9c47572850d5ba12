"""Building blocks for stores: the options of a URL, the stored form of a holder, the rules of a name.

A store author needs `leasehold.spi` (the ports), this package, and `leasehold.testing` (the contract).
"""
