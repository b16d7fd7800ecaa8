"""The ways to sweep over a smooth piece of a run, and the choice between them."""
