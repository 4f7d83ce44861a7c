"""From a geometry to a running kernel: catalogs, compilation, checks, prepared launches."""
