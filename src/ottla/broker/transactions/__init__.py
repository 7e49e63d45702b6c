"""What the transaction coordinator needs from a broker, and what producers need of it: markers, and verification."""
