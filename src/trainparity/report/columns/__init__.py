"""The tables, each defined once for the console, the page and the CSV files: a new column is one entry here."""
