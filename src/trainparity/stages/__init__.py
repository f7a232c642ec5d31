"""One thin module per stage of a pipeline: read params.yaml, call the library, write the outputs."""
