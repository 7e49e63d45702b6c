"""Reading records: what is subscribed to, fetching ahead, decoding, and the two faces of a consumer."""
