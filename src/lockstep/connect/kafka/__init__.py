"""What Kafka's source and sink share: their specs, the client, records as tables, and the fence of an output topic."""
