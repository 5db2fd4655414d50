"""A federation in motion: data and model in place, a round spelled out once, executors to run its blocks."""
