"""Trading, hedging and options, and the prices behind them."""
