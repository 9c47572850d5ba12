"""The stores. Each is imported only when its URL is opened, and sees only `spi`, `values` and `errors`."""
