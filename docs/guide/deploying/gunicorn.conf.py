wsgi_app = "shop:create_app()"
bind = "127.0.0.1:8000"
workers = 4
threads = 8  # a request that waits for a slow gateway keeps no other waiting
timeout = 60  # seconds; longer than the lease, which is 30 by default
graceful_timeout = 30  # seconds that requests may take to finish after SIGTERM
