"""Problems with finitely many states, which can be solved exactly."""
