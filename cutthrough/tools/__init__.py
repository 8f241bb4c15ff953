"""Commands beside serve: explain, suggest, console, passwd; and the generated pages."""
