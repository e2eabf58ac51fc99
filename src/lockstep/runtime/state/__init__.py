"""What a replica starts from: its checkpoint read from outside, copies of it, and the choice between them."""
