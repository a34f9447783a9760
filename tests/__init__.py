"""The test suite.  ``python -m tests`` runs everything; see ``tests/__main__.py``."""
