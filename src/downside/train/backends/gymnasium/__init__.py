"""The backend of all other environments: Python steps them."""
