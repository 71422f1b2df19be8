"""Wire format of batches: encoding, decoding, checksums and reusable memory."""
