-- Read the settings that cost or risk something, the privileges that our role lacks, and the time.
SELECT clock_timestamp(),
       ARRAY(SELECT privilege || ' on ' || name
               FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege,
                    unnest(ARRAY['idempotency_record', 'idempotency_checkpoint']) AS name
              WHERE NOT has_table_privilege(name, privilege)),
       current_setting('client_connection_check_interval', true), current_setting('synchronous_commit'),
       current_setting('fsync'), current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')
