"""How the core runs: on threads (blocking) or on asyncio. The simulator brings a third runtime of its own."""
