"""HTTP: what each outcome means for an answer (`semantics`), and one short adapter a way of calling."""
