# The package's files are unpacked in the cache, where squid's user may not read
cp "@CACHE@/squid-openssl/usr/lib/squid/security_file_certgen" certgen
cp "@CACHE@/squid-openssl/usr/lib/squid/basic_ncsa_auth" ncsa_auth
cp "@CACHE@/squid-openssl/usr/lib/squid/unlinkd" unlinkd
chmod 755 certgen ncsa_auth unlinkd
./certgen -c -s leaves -M 16MB >/dev/null
[ "$(id -u)" != 0 ] || chown -R proxy leaves authority.pem
exec "@PROGRAM@" -N -f squid-bump.conf
