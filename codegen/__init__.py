"""The generator: reads a spec, checks it, renders the catalog. It runs where there is no GPU."""
