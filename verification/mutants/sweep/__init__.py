"""Every small change of a module that could be a bug, each run against the tests that reach its line."""
