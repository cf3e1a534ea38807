"""What differs between threads and an event loop: waiting, shielding, background renewals."""
