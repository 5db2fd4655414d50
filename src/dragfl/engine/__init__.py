"""The simulation engine: a round, its clients, server and adversary, client states, and the backends that train."""
