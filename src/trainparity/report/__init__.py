"""Tables, plots and the page, drawn from what the runs left on disk; nothing here imports torch."""
