"""The backend of environments in JAX and of simulators: one compiled program."""
