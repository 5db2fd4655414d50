"""What `dragfl bench` measures. It lies beside the package: a user of the library never needs it."""
