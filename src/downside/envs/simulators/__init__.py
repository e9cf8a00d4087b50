"""Problems that users write in NumPy."""
