"""A transformer decoder, built from a Hugging Face model directory."""
