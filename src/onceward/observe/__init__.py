"""What happened, told once at the seam: frozen events, and who listens to them."""
