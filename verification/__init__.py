"""Checks that are larger than tests: the simulation and the mutants that score it. Not part of the wheel."""
