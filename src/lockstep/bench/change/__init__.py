"""What a reader of the sink notices while a job changes its shape and its code, and what each step takes."""
