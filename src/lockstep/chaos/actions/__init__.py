"""The actions, one subject a file. Each file has a list ``ACTIONS``; ``chaos/catalogue.py`` joins them."""
