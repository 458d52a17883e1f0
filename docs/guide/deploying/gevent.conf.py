wsgi_app = "shop:create_app()"
bind = "127.0.0.1:8000"
workers = 4
worker_class = "gevent"  # which patches the standard library before it imports the app
worker_connections = 100  # requests at a time, in each worker
timeout = 60  # seconds without a sign of life of the whole worker; longer than the lease
graceful_timeout = 30
