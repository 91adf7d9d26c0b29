"""The streams between processes: records, codecs, servers, dialling."""
