"""What others wrote and the package brings along, each with its licence."""
