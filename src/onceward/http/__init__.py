"""HTTP: what each outcome means for an answer, and the endpoints and clients that are built on it."""
