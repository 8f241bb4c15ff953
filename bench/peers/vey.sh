# Makes the leaves, at UDP's port of the same number
UDP_LISTEN_ADDR=127.0.0.1:@PORT@ "@CACHE@/vey/bin/g3fcgen" -c "@DIR@/vey-leaves.yaml" &
exec "@PROGRAM@" -c "@DIR@/vey.yaml"
