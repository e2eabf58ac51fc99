"""Folders that are no folders of this host: on HDFS and in S3."""
