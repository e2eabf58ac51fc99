"""Changes to a running job: durable requests that whoever coordinates carries out, done once or rolled back."""
