"""A PostgreSQL that loses its leader, three nodes under Patroni."""
