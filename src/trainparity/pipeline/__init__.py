"""What the stages do besides launching: plans of what each depends on, data, references, pictures, known answers."""
