-- Who was refused, and why, in the last hour
SELECT reason, coalesce(user, tried_user) AS name, count() AS requests
FROM access_log
WHERE time > now() - INTERVAL 1 HOUR AND status IN (403, 407, 429)
GROUP BY reason, name
ORDER BY requests DESC
LIMIT 20;

-- Bytes of each user by day
SELECT toDate(time) AS day, user, sum(bytes_up) AS up, sum(bytes_down) AS down
FROM access_log
WHERE user IS NOT NULL
GROUP BY day, user
ORDER BY day DESC, down DESC;

-- Where the time goes, by phase, of what an origin answered
SELECT
    toStartOfMinute(time) AS minute,
    quantile(0.5)(dns_ms) AS dns,
    quantile(0.5)(connect_ms) AS connect,
    quantiles(0.5, 0.99)(first_byte_ms) AS first_byte
FROM access_log
WHERE reason = 'ok' AND kind = 'request'
GROUP BY minute
ORDER BY minute DESC;

-- Origins that fail, and how
SELECT host, reason, count() AS failures, uniq(client) AS clients
FROM access_log
WHERE reason IN ('dns_not_found', 'dns_timeout', 'connection_refused', 'connect_timeout',
                 'origin_closed', 'response_timeout')
GROUP BY host, reason
ORDER BY failures DESC
LIMIT 20;
