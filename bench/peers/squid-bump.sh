# The package's files are unpacked in the cache, where squid's user may not read
cp "@CACHE@/squid-openssl/usr/lib/squid/security_file_certgen" certgen
chmod 755 certgen
./certgen -c -s leaves -M 16MB >/dev/null
[ "$(id -u)" != 0 ] || chown -R proxy leaves authority.pem
exec "@PROGRAM@" -N -f squid-bump.conf
