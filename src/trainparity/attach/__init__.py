"""What happens inside the training process that `trainparity run` records: no line of the script is changed."""
