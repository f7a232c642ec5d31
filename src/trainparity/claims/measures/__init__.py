"""How each measure of claims.yaml is computed from what the runs left on disk, in files of one subject."""
