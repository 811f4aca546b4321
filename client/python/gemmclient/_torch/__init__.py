"""What gemmclient.torch is made of: for gemmclient's own modules alone."""
