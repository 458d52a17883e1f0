"""The guards under real servers: races, deaths, pauses, and a store that fails. Real processes, real signals."""
