"""How well estimates are known: covariance, profiles, predictions, posteriors of fields."""
