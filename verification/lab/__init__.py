"""Real servers and real faults for tests and benchmarks: started on loopback, on free ports, stopped by pid."""
