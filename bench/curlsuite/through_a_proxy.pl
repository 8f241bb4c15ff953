# For runtests.pl, by -L: what its servers and its curl saw, compared as through a proxy.
#
# A proxy adds fields (Via), drops those that are for one hop (Connection), speaks HTTP/1.1
# whatever came, ends the lines of a head by CRLF, writes one space behind a colon, may order
# fields anew, send a response in chunks, and say the reason of its status in other words.
# None of that is the test's subject, so it is taken from both sides
# before they are compared; all else must be the same, octet by octet.
use strict;
use warnings;

package main;

our ($plain_compareparts, $hop, $first_line);
$plain_compareparts = \&main::compareparts;
$hop = qr/^(?:Via|X-Forwarded-For|X-Cache|X-Cache-Lookup|Cache-Status|Cache-Control|Age|Date
            |Connection|Proxy-Connection|Keep-Alive|TE|Proxy-Authorization)\s*:/xi;
$first_line = qr{^(?:[A-Z]+ \S+ HTTP/1\.[01]|HTTP/1\.[01] \d{3})};

# Each head without the fields of one hop, the others sorted, as HTTP/1.1.
sub as_through_a_proxy {
    my @out;
    my @head;
    my ($in_head, $of_response) = (0, 0);
    # A body may end without the end of a line, and the next message follows at once
    for my $line (split(m{(?<=\n)|(?=[A-Z]{3,10} /\S* HTTP/1\.[01]\r?\n)|(?=HTTP/1\.[01] \d{3})},
                        join("", @{$_[0]}))) {
        $line =~ s{[ \t]*\r?\n$}{\n} if $in_head || $line =~ $first_line;
        $line =~ s{^([^\s:]+:)[ \t]*}{$1 } if $in_head;
        next if $line eq "[DISCONNECT]\n";      # of a proxy, and not of curl
        if (!$in_head && $line =~ $first_line) {
            $in_head = 1;
            $line =~ s{^([A-Z]+) http://[^/ ]+(\S*) }{"$1 " . ($2 eq "" ? "\/" : $2) . " "}e;
            $line =~ s{HTTP/1\.0}{HTTP/1.1};
            $of_response = $line =~ s{^(HTTP/1\.1 \d{3}).*}{$1};
            push @out, $line;
        } elsif ($in_head && $line =~ /^\r?\n/) {
            $in_head = 0;
            push @out, sort(@head), $line;
            @head = ();
        } elsif ($in_head) {
            push @head, $line if $line !~ $hop
                && !($of_response && $line =~ /^Transfer-Encoding: *chunked$/i);
        } else {
            push @out, $line;
        }
    }
    return [@out, sort(@head)];
}

no warnings "redefine";
*main::compareparts = sub {
    return $plain_compareparts->(as_through_a_proxy($_[0]), as_through_a_proxy($_[1]));
};

1;
