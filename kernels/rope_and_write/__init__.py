"""What lies between the projection of queries, keys and values and attention: norm, rotation, pool write."""
