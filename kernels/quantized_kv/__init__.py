"""Keys and values kept in 8 bits: int8 or float8 e4m3, one scale per token and head."""
