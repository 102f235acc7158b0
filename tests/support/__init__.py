"""What several tests use: ranks as threads, schemes in lockstep, gradients, judges of searches."""
