"""Records, tables and the database."""
