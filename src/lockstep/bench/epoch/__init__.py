"""`lockstep bench epoch`: where the time of a warm epoch goes, and of a replica's way back."""
