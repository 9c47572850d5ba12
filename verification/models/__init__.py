"""Small models of the protocols, searched state by state: every order of events, not a sample of them.

A model leaves out everything but the rule in question, so that all its states can be visited. What a search says holds
for the instance that was searched (so many nodes, attempts, ticks of a clock), not more; `docs/explanation/models.md`
says what each instance is and what it leaves out.
"""
