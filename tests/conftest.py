pytest_plugins = ["tests.model_fixtures"]
