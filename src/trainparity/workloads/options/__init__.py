"""What each of our workloads can be told, apart from it: settings are checked without importing torch."""
