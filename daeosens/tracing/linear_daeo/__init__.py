"""DAEOs whose inner problem is a linear programme."""
