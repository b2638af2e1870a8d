"""The ways into a server. Each yields the pieces of an answer; leaving the iteration leaves the server."""
