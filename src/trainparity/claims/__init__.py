"""Published figures, and what we measure for them."""
