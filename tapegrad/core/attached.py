"""The methods that declarations attach to `Tensor`, for type checkers: `attached.pyi` lists them; when running there is nothing here."""
